use latent_canvas::kernels::{
    AttentionArgs, AttentionForm, Kernel, Limits, Precision, Role, Tile, Tuning,
};
use latent_canvas_tests::kernel_case::Case;

use super::{PRECISIONS, tolerance};

const PLAIN: AttentionArgs = AttentionArgs {
    batch: 2,
    num_heads: 2,
    head_dim: 40,
    queries: 35,
    keys: 35,
    causal: false,
    form: AttentionForm::Flash,
    precision: Precision::F32,
    in_place: false,
};

/// In both forms, slices that do and do not divide the queries.
fn check_forms(args: AttentionArgs, outlier: f32, tolerance: f64) {
    let slices = [1_usize, 5, 16, args.queries].map(|rows| AttentionForm::Sliced {
        rows: rows.min(args.queries),
    });
    let forms = if args.queries > 10 {
        &slices[1..]
    } else {
        &slices[..]
    };
    let others = [AttentionForm::AllHeads, AttentionForm::Flash];
    for form in forms.iter().copied().chain(others) {
        Case::new(Kernel::Attention(AttentionArgs { form, ..args }), outlier).check(tolerance);
    }
}

/// One, two and four threads a query; 68 and 72 do not divide evenly over two.
#[test]
fn head_sizes() {
    for (head_dim, precision) in [
        (8, Precision::F32),
        (40, Precision::F32),
        (64, Precision::F32),
        (68, Precision::F32),
        (72, Precision::F16),
        (80, Precision::F16),
        (160, Precision::F16),
        (160, Precision::F32),
    ] {
        let args = AttentionArgs {
            head_dim,
            precision,
            ..PLAIN
        };
        check_forms(args, 1.0, tolerance(precision));
    }
}

#[test]
fn text_encoder_and_cross_attention() {
    for precision in PRECISIONS {
        let causal = AttentionArgs {
            queries: 77,
            keys: 77,
            causal: true,
            head_dim: 8,
            precision,
            ..PLAIN
        };
        check_forms(causal, 1.0, tolerance(precision));
        let cross = AttentionArgs {
            queries: 70,
            keys: 77,
            head_dim: 16,
            precision,
            ..PLAIN
        };
        check_forms(cross, 1.0, tolerance(precision));
        check_forms(
            AttentionArgs {
                queries: 3,
                keys: 1,
                precision,
                ..PLAIN
            },
            1.0,
            tolerance(precision),
        );
    }
}

#[test]
fn in_place() {
    for precision in PRECISIONS {
        let args = AttentionArgs {
            in_place: true,
            queries: 70,
            precision,
            ..PLAIN
        };
        check_forms(args, 1.0, tolerance(precision));
    }
}

/// One head as wide as the VAE's, and sizes that flash does not take.
#[test]
fn wide_and_odd_heads_are_sliced() {
    for (head_dim, num_heads) in [(512, 1), (10, 2), (7, 1)] {
        let args = AttentionArgs {
            head_dim,
            num_heads,
            form: AttentionForm::Sliced { rows: 16 },
            ..PLAIN
        };
        Case::new(Kernel::Attention(args), 1.0).check(1e-5);
        let flash = Kernel::Attention(AttentionArgs {
            form: AttentionForm::Flash,
            ..args
        });
        let error = flash
            .launches(&Limits::DEFAULT, &Tuning::default())
            .unwrap_err();
        assert_eq!(error.code(), "invalid-argument");
        assert!(!AttentionArgs::flash_takes(head_dim));
    }
}

#[test]
fn slices_do_not_change_a_bit() {
    let output = |form, tile| {
        let args = AttentionArgs { form, ..PLAIN };
        let case = Case {
            tuning: Tuning::by_rule(Some(tile)),
            ..Case::new(Kernel::Attention(args), 1.0)
        };
        case.gpu()
    };
    let whole = output(AttentionForm::AllHeads, Tile::Large);
    for tile in Tile::ALL {
        assert!(output(AttentionForm::AllHeads, tile) == whole, "{tile:?}");
        for rows in [1, 7, 16, 35] {
            let sliced = output(AttentionForm::Sliced { rows }, tile);
            assert!(sliced == whole, "slices of {rows}, {tile:?}");
        }
    }
}

/// V05: queries and keys of 32 in all 64 lanes. The product is 65536, past float16's 65504; the softmax is that of float32: even weights.
#[test]
fn products_past_float16() {
    for precision in PRECISIONS {
        for form in [AttentionForm::Flash, AttentionForm::Sliced { rows: 9 }] {
            let args = AttentionArgs {
                head_dim: 64,
                form,
                precision,
                ..PLAIN
            };
            let case = Case::new(Kernel::Attention(args), 1.0)
                .with(Role::Query, vec![32.0; 2 * 35 * 128])
                .with(Role::Key, vec![32.0; 2 * 35 * 128]);
            case.check(tolerance(precision));
        }
    }
}

/// Scores of 1e4 and more: one key takes all, and nothing overflows.
#[test]
fn outliers() {
    for causal in [false, true] {
        // the exponent of a score near 1e5 is known to 1e-2 only, so keys that nearly tie decide the distance
        check_forms(AttentionArgs { causal, ..PLAIN }, 100.0, 2e-3);
        let case = |form| {
            Case::new(
                Kernel::Attention(AttentionArgs {
                    causal,
                    form,
                    ..PLAIN
                }),
                1e4,
            )
            .gpu()
        };
        for form in [AttentionForm::Flash, AttentionForm::Sliced { rows: 35 }] {
            assert!(
                case(form).iter().all(|x| x.abs() <= 1.0),
                "a mean of values between -1 and 1"
            );
        }
    }
}
