//! Speed of the kernels on a native adapter: GFLOP a second, by the clock and by the CPU time of this process, in which a software
//! adapter runs. A multiply-add counts as two.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[cfg(not(target_family = "wasm"))]
fn main() {
    native::main();
}

#[cfg(target_family = "wasm")]
fn main() {}

#[cfg(not(target_family = "wasm"))]
mod native {
    use latent_canvas::kernels::{
        Activation, AttentionArgs, AttentionForm, Conv2dArgs, GemmArgs, GroupNormArgs, Kernel,
        Precision, Residual, Tile, Tuning,
    };
    use latent_canvas_bench::cpu::cpu_seconds;
    use latent_canvas_tests::{gpu::Gpu, kernel_case::Case};

    const TIMES: usize = 3;

    pub(super) fn main() {
        // a word on the command line picks the rows whose name has it
        let wanted: Vec<String> = std::env::args()
            .skip(1)
            .filter(|word| !word.starts_with("--"))
            .collect();
        let gpu = Gpu::get();
        println!("{}", gpu.adapter);
        println!(
            "{:44} {:7} {:>9} {:>9} {:>9}",
            "kernel", "tile", "ms", "GFLOP/s", "per CPU s"
        );
        for (name, kernel) in kernels() {
            let chosen = wanted.is_empty() || wanted.iter().any(|word| name.contains(word));
            if !chosen {
                continue;
            }
            let tiles = match kernel {
                Kernel::Gemm(_) | Kernel::Attention(_) | Kernel::Conv2d(_) => &Tile::ALL[..],
                _ => &[Tile::Large],
            };
            for tile in tiles {
                let flash =
                    matches!(kernel, Kernel::Attention(args) if args.form == AttentionForm::Flash);
                if flash && *tile != Tile::Large {
                    continue;
                }
                let case = Case {
                    tuning: Tuning::by_rule(Some(*tile)),
                    ..Case::new(kernel, 1.0)
                };
                let launches = kernel.launches(&case.limits, &case.tuning).unwrap();
                let operands = kernel.operands();
                let bytes = case.bytes();
                let run = |times| gpu.repeat(&launches, &operands, &bytes, times);
                // what a run costs besides, uploads and compilation among it, is taken off
                run(1);
                let idle = cpu_seconds(|| drop(run(0)));
                let mut wall = f64::INFINITY;
                let busy = cpu_seconds(|| wall = run(TIMES).1.as_secs_f64());
                let cpu = ((busy - idle) / TIMES as f64).max(1e-9);
                let work = 2.0 * kernel.macs() as f64 / 1e9;
                println!(
                    "{name:44} {:7} {:9.2} {:9.2} {:9.2}",
                    format!("{tile:?}"),
                    wall * 1e3,
                    work / wall,
                    work / cpu
                );
            }
        }
    }

    fn kernels() -> Vec<(String, Kernel)> {
        let mut list = Vec::new();
        for precision in [Precision::F32, Precision::F16] {
            let gemm = |m, n, k| {
                Kernel::Gemm(GemmArgs {
                    m,
                    n,
                    k,
                    second_source: None,
                    bias: true,
                    activation: Activation::None,
                    geglu: false,
                    residual: Residual::None,
                    k_slices: 1,
                    input: precision,
                    output: precision,
                })
            };
            let conv = |side, channels_in, channels_out, k_slices| {
                Kernel::Conv2d(Conv2dArgs {
                    batch: 1,
                    height: side,
                    width: side,
                    channels_in,
                    channels_out,
                    kernel: 3,
                    stride: 1,
                    padding_before: 1,
                    padding_after: 1,
                    upsample: None,
                    channel_add: None,
                    residual: Residual::None,
                    k_slices,
                    strip: None,
                    input: precision,
                    output: precision,
                })
            };
            let attention = |form| {
                Kernel::Attention(AttentionArgs {
                    batch: 1,
                    num_heads: 8,
                    head_dim: 40,
                    queries: 1024,
                    keys: 1024,
                    causal: false,
                    form,
                    precision,
                    in_place: false,
                })
            };
            let norm = Kernel::GroupNorm(GroupNormArgs {
                batch: 1,
                positions: 4096,
                channels: 320,
                second_source: None,
                groups: 32,
                eps: 1e-5,
                silu: true,
                input: precision,
                output: precision,
                in_place: false,
            });
            let rows = [
                ("gemm 1024x1280, k 320", gemm(1024, 1280, 320)),
                ("gemm 77x768, k 768", gemm(77, 768, 768)),
                ("conv2d 320->320 at 32x32", conv(32, 320, 320, 1)),
                ("conv2d 1280->320 at 8x8", conv(8, 1280, 320, 1)),
                ("conv2d 1280->320 at 8x8, 4 slices", conv(8, 1280, 320, 4)),
                ("conv2d 4->320 at 32x32, direct", conv(32, 4, 320, 1)),
                ("conv2d 320->4 at 32x32, direct", conv(32, 320, 4, 1)),
                (
                    "attention 8x40, 1024 tokens, flash",
                    attention(AttentionForm::Flash),
                ),
                (
                    "attention 8x40, 1024 tokens, sliced",
                    attention(AttentionForm::Sliced { rows: 1024 }),
                ),
                ("group_norm 320 at 64x64", norm),
            ];
            list.extend(rows.map(|(name, kernel)| (format!("{name}, {precision:?}"), kernel)));
        }
        list
    }
}
