//! Every kernel against its CPU twin, on a native adapter with WebGPU's default limits: sizes that no tile divides, odd channels, outliers,
//! both precisions, every tile.
#![cfg(all(feature = "plan", not(target_family = "wasm")))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod kernels {
    mod attention;
    mod conv2d;
    mod elementwise;
    mod embedding;
    mod gemm;
    mod norms;
    mod repack;
    mod twins;

    use latent_canvas::kernels::{Kernel, Precision, Tile, Tuning};
    use latent_canvas_tests::kernel_case::Case;

    const PRECISIONS: [Precision; 2] = [Precision::F32, Precision::F16];
    /// Float32 sums in another order than the twin's; what is stored as float16 has 11 bits, and WGSL lets the last be rounded either way.
    const fn tolerance(output: Precision) -> f64 {
        match output {
            Precision::F32 => 1e-5,
            Precision::F16 => 1e-3,
        }
    }

    /// Checks the case in every tile; they must agree to the last bit.
    fn check_tiles(kernel: Kernel, outlier: f32, tolerance: f64) {
        let mut case = Case::new(kernel, outlier);
        let outputs = Tile::ALL.map(|tile| {
            case.tuning = Tuning::by_rule(Some(tile));
            case.check(tolerance);
            case.gpu()
        });
        for output in &outputs {
            assert!(*output == outputs[0], "{kernel:?}: the tiles differ");
        }
    }
}
