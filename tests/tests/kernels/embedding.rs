use latent_canvas::kernels::{EmbeddingArgs, Kernel, Limits, Precision, Tuning};
use latent_canvas_tests::kernel_case::Case;

use super::{PRECISIONS, tolerance};

/// The ids of a case go to 999: most lie past this table and read its last row.
#[test]
fn rows_of_both_tables() {
    for precision in PRECISIONS {
        for channels in [32, 30, 768] {
            let args = EmbeddingArgs {
                batch: 2,
                tokens: 7,
                channels,
                rows: 500,
                positions: 9,
                output: precision,
            };
            Case::new(Kernel::Embedding(args), 1.0).check(tolerance(precision));
        }
    }
    let odd = EmbeddingArgs {
        batch: 2,
        tokens: 5,
        channels: 7,
        rows: 11,
        positions: 5,
        output: Precision::F32,
    };
    Case::new(Kernel::Embedding(odd), 1.0).check(1e-6);
}

/// W01: the token table of CLIP, 151,781,376 bytes as float32, is past the default limit of a binding; as float16 it is not. One that is
/// too large all the same is refused with the limit's name, not run into black.
#[test]
fn token_tables_and_the_default_limit_of_a_binding() {
    let args = EmbeddingArgs {
        batch: 1,
        tokens: 77,
        channels: 768,
        rows: 49408,
        positions: 77,
        output: Precision::F32,
    };
    let launches = |args| Kernel::Embedding(args).launches(&Limits::DEFAULT, &Tuning::default());
    let table = launches(args).unwrap()[0].bindings[1];
    assert_eq!(table.bytes, 151_781_376 / 2);
    let twice = EmbeddingArgs {
        rows: 2 * 49408,
        ..args
    };
    let error = launches(twice).unwrap_err();
    assert_eq!(error.code(), "limit-too-small");
    assert!(error.to_string().contains("151781376"), "{error}");
}
