use latent_canvas::kernels::{EmbeddingArgs, Kernel, Precision};
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
