use half::{bf16, f16};
use latent_canvas::kernels::{Limits, RepackArgs, RepackLayout, SourceType, reference};
use latent_canvas_tests::gpu::Gpu;

const TYPES: [SourceType; 3] = [SourceType::F32, SourceType::F16, SourceType::Bf16];

/// Values of both signs, small and past float16's range.
fn source(kind: SourceType, count: usize) -> Vec<u8> {
    let value = |i: usize| match i % 17 {
        3 => 1e6,
        5 => -7e4,
        8 => 0.0,
        _ => ((i * 37 % 101) as f32 - 50.0) / 16.0,
    };
    let mut bytes: Vec<u8> = (0..count)
        .flat_map(|i| match kind {
            SourceType::F32 => value(i).to_le_bytes().to_vec(),
            SourceType::F16 => f16::from_f32(value(i).clamp(-65504.0, 65504.0))
                .to_le_bytes()
                .to_vec(),
            SourceType::Bf16 => bf16::from_f32(value(i)).to_le_bytes().to_vec(),
        })
        .collect();
    // as in a staging buffer: the rest of the last word is another tensor's
    bytes.resize(bytes.len().next_multiple_of(4), 0x7b);
    bytes
}

/// Runs it over a tensor full of 0x33, and holds every byte against the twin: the rows written, all others as before.
fn check(args: RepackArgs) {
    let operands = args.operands();
    let source = source(args.source, args.rows * args.k());
    let before = vec![0x33; operands[1].bytes as usize];
    let launch = args.launch(&Limits::DEFAULT).unwrap();
    let after = Gpu::get().run(&[launch], &operands, &[source.clone(), before.clone()]);
    let mut expected = before;
    let rows = reference::repack(&args, &source);
    let row_bytes = rows.len() / args.rows;
    expected[args.first_row * row_bytes..][..rows.len()].copy_from_slice(&rows);
    assert!(after[1] == expected, "{args:?}");
}

#[test]
fn every_layout_from_every_type() {
    for source in TYPES {
        for layout in [
            RepackLayout::Matrix { k: 13 },
            RepackLayout::Matrix { k: 24 },
            RepackLayout::Conv2d {
                channels: 5,
                kernel: 3,
            },
            RepackLayout::Conv2d {
                channels: 16,
                kernel: 3,
            },
            RepackLayout::Conv2d {
                channels: 12,
                kernel: 1,
            },
            RepackLayout::Table { channels: 7 },
            RepackLayout::Table { channels: 12 },
            RepackLayout::Vector,
        ] {
            check(RepackArgs {
                layout,
                source,
                all_rows: 9,
                first_row: 2,
                rows: 5,
            });
        }
    }
}

/// W03: 1, 3 and 5 float16 values, and a scalar, end in the middle of a word; what lies behind them stays.
#[test]
fn odd_numbers_of_float16() {
    for count in [1, 3, 5] {
        for layout in [
            RepackLayout::Vector,
            RepackLayout::Matrix { k: 1 },
            RepackLayout::Table { channels: 1 },
        ] {
            check(RepackArgs {
                layout,
                source: SourceType::F16,
                all_rows: count,
                first_row: 0,
                rows: count,
            });
        }
        for layout in [
            RepackLayout::Matrix { k: count },
            RepackLayout::Table { channels: count },
        ] {
            check(RepackArgs {
                layout,
                source: SourceType::F16,
                all_rows: 1,
                first_row: 0,
                rows: 1,
            });
            check(RepackArgs {
                layout,
                source: SourceType::F16,
                all_rows: 3,
                first_row: 1,
                rows: 1,
            });
        }
    }
}

#[test]
fn rows_that_need_no_repacking_are_the_same_bytes() {
    for layout in [
        RepackLayout::Matrix { k: 16 },
        RepackLayout::Matrix { k: 12 },
        RepackLayout::Conv2d {
            channels: 8,
            kernel: 1,
        },
        RepackLayout::Conv2d {
            channels: 8,
            kernel: 3,
        },
        RepackLayout::Table { channels: 6 },
        RepackLayout::Table { channels: 5 },
        RepackLayout::Vector,
    ] {
        for kind in TYPES {
            let args = RepackArgs {
                layout,
                source: kind,
                all_rows: 3,
                first_row: 0,
                rows: 3,
            };
            let bytes = source(kind, 3 * args.k());
            assert_eq!(
                args.is_copy(),
                reference::repack(&args, &bytes) == bytes,
                "{args:?}"
            );
        }
    }
}
