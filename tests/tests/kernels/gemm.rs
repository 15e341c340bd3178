use latent_canvas::kernels::{Activation, GemmArgs, Kernel, Precision, Residual};
use latent_canvas_tests::kernel_case::Case;

use super::{PRECISIONS, check_tiles, tolerance};

const PLAIN: GemmArgs = GemmArgs {
    m: 1,
    n: 1,
    k: 1,
    second_source: None,
    bias: true,
    activation: Activation::None,
    geglu: false,
    residual: Residual::None,
    k_slices: 1,
    input: Precision::F32,
    output: Precision::F32,
};

/// Sizes below, at and above the tiles, and none divisible by anything.
const SIZES: [[usize; 3]; 6] = [
    [1, 4, 4],
    [64, 64, 16],
    [77, 68, 36],
    [65, 130, 50],
    [130, 62, 18],
    [31, 96, 320],
];

#[test]
fn sizes() {
    for precision in PRECISIONS {
        for [m, n, k] in SIZES {
            let args = GemmArgs {
                m,
                n,
                k,
                input: precision,
                output: precision,
                ..PLAIN
            };
            check_tiles(Kernel::Gemm(args), 1.0, tolerance(precision));
        }
    }
}

#[test]
fn odd_channels() {
    for [m, n, k] in [[3, 5, 7], [67, 33, 19], [1, 1, 1], [66, 65, 17]] {
        let args = GemmArgs { m, n, k, ..PLAIN };
        check_tiles(Kernel::Gemm(args), 1.0, 1e-5);
        let geglu = GemmArgs {
            geglu: true,
            ..args
        };
        check_tiles(Kernel::Gemm(geglu), 1.0, 1e-5);
    }
}

#[test]
fn outliers() {
    let args = GemmArgs {
        m: 70,
        n: 36,
        k: 100,
        ..PLAIN
    };
    check_tiles(Kernel::Gemm(args), 1e4, 1e-5);
}

#[test]
fn epilogues() {
    for precision in PRECISIONS {
        for (n, bias, activation, residual) in [
            (38, true, Activation::Silu, Residual::Separate),
            (36, true, Activation::Gelu, Residual::InPlace),
            (36, false, Activation::QuickGelu, Residual::None),
            (38, false, Activation::None, Residual::InPlace),
        ] {
            let args = GemmArgs {
                m: 33,
                n,
                k: 24,
                bias,
                activation,
                residual,
                input: precision,
                output: precision,
                ..PLAIN
            };
            Case::new(Kernel::Gemm(args), 1.0).check(tolerance(precision));
        }
    }
}

#[test]
fn geglu() {
    for precision in PRECISIONS {
        for (n, residual) in [
            (34, Residual::None),
            (64, Residual::Separate),
            (70, Residual::InPlace),
        ] {
            let args = GemmArgs {
                m: 45,
                n,
                k: 40,
                geglu: true,
                residual,
                input: precision,
                output: precision,
                ..PLAIN
            };
            check_tiles(Kernel::Gemm(args), 1.0, tolerance(precision));
        }
    }
}

#[test]
fn two_sources() {
    for precision in PRECISIONS {
        for (k, k2) in [(48, 16), (40, 12), (34, 14), (52, 48)] {
            let args = GemmArgs {
                m: 66,
                n: 40,
                k,
                second_source: Some(k2),
                input: precision,
                output: precision,
                ..PLAIN
            };
            check_tiles(Kernel::Gemm(args), 1.0, tolerance(precision));
        }
    }
    let odd = GemmArgs {
        m: 9,
        n: 5,
        k: 24,
        second_source: Some(7),
        ..PLAIN
    };
    check_tiles(Kernel::Gemm(odd), 1.0, 1e-5);
}

#[test]
fn split_k() {
    for precision in PRECISIONS {
        for (k, k_slices) in [(160, 2), (200, 3), (34, 8)] {
            for geglu in [false, true] {
                let args = GemmArgs {
                    m: 37,
                    n: 46,
                    k,
                    k_slices,
                    geglu,
                    activation: if geglu {
                        Activation::None
                    } else {
                        Activation::Silu
                    },
                    residual: Residual::Separate,
                    input: precision,
                    output: precision,
                    ..PLAIN
                };
                check_tiles(Kernel::Gemm(args), 1.0, tolerance(precision));
            }
        }
    }
    let odd = GemmArgs {
        m: 5,
        n: 7,
        k: 65,
        k_slices: 2,
        geglu: true,
        ..PLAIN
    };
    check_tiles(Kernel::Gemm(odd), 1.0, 1e-5);
}

#[test]
fn precisions_may_differ() {
    let args = GemmArgs {
        m: 20,
        n: 24,
        k: 36,
        input: Precision::F16,
        ..PLAIN
    };
    check_tiles(Kernel::Gemm(args), 1.0, 1e-5);
    let args = GemmArgs {
        m: 20,
        n: 24,
        k: 36,
        output: Precision::F16,
        ..PLAIN
    };
    check_tiles(Kernel::Gemm(args), 1.0, tolerance(Precision::F16));
}
