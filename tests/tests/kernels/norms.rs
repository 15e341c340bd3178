use latent_canvas::kernels::{
    GroupApplyArgs, GroupCombineArgs, GroupNormArgs, GroupStatisticsArgs, Kernel, LayerNormArgs,
    Precision, Role,
};
use latent_canvas_tests::kernel_case::Case;

use super::{PRECISIONS, tolerance};

const GROUPS: GroupNormArgs = GroupNormArgs {
    batch: 2,
    positions: 35,
    channels: 32,
    second_source: None,
    groups: 8,
    eps: 1e-5,
    silu: false,
    input: Precision::F32,
    output: Precision::F32,
    in_place: false,
};

const ROWS: LayerNormArgs = LayerNormArgs {
    rows: 5,
    channels: 320,
    eps: 1e-5,
    input: Precision::F32,
    output: Precision::F32,
    in_place: false,
};

fn check_groups(args: GroupNormArgs) {
    for precision in PRECISIONS {
        let args = GroupNormArgs {
            input: precision,
            output: precision,
            ..args
        };
        Case::new(Kernel::GroupNorm(args), 1.0).check(tolerance(precision));
    }
}

#[test]
fn group_norm_of_many_shapes() {
    for (channels, groups) in [
        (32, 8),
        (60, 6),
        (320, 32),
        (10, 5),
        (6, 2),
        (32, 32),
        (24, 1),
    ] {
        for silu in [false, true] {
            check_groups(GroupNormArgs {
                channels,
                groups,
                silu,
                ..GROUPS
            });
            check_groups(GroupNormArgs {
                channels,
                groups,
                silu,
                in_place: true,
                ..GROUPS
            });
        }
    }
}

#[test]
fn group_norm_in_several_slices() {
    // 3 slices of 2046 and 1 of less; one group wider than a workgroup
    check_groups(GroupNormArgs {
        batch: 1,
        positions: 1025,
        channels: 24,
        groups: 1,
        ..GROUPS
    });
    check_groups(GroupNormArgs {
        positions: 9,
        channels: 2048,
        groups: 1,
        ..GROUPS
    });
    let args = GroupNormArgs {
        positions: 1025,
        channels: 24,
        groups: 1,
        ..GROUPS
    };
    assert!(args.slices() > 2);
}

#[test]
fn group_norm_over_the_seam_of_two_sources() {
    for (channels, c2, groups) in [(48, 16, 8), (40, 10, 5), (36, 14, 4), (32, 12, 32)] {
        check_groups(GroupNormArgs {
            channels,
            second_source: Some(c2),
            groups,
            silu: true,
            ..GROUPS
        });
    }
}

#[test]
fn norms_of_odd_channels() {
    for (channels, groups) in [(33, 11), (7, 7), (15, 3)] {
        let args = GroupNormArgs {
            channels,
            groups,
            ..GROUPS
        };
        Case::new(Kernel::GroupNorm(args), 1.0).check(1e-5);
        let args = LayerNormArgs { channels, ..ROWS };
        Case::new(Kernel::LayerNorm(args), 1.0).check(1e-5);
    }
}

/// Mean 1000, deviation 0.1: the mean of the squares minus the square of the mean has no digit left in float32.
#[test]
fn a_large_mean_costs_no_digits() {
    let far = |count: usize| {
        (0..count)
            .map(|i| 1000.0 + 0.1 * ((i * 7 % 13) as f32 - 6.0))
            .collect()
    };
    let groups = Case::new(
        Kernel::GroupNorm(GroupNormArgs {
            positions: 1025,
            groups: 4,
            ..GROUPS
        }),
        1.0,
    );
    // the input itself has steps of 6e-5 here, of a deviation of 0.37; float32 cannot say the mean better than that
    groups.with(Role::Input, far(2 * 1025 * 32)).check(1e-4);
    let rows = Case::new(Kernel::LayerNorm(ROWS), 1.0);
    rows.with(Role::Input, far(5 * 320)).check(1e-4);
}

#[test]
fn outliers() {
    Case::new(Kernel::GroupNorm(GROUPS), 1e4).check(1e-5);
    Case::new(Kernel::LayerNorm(ROWS), 1e4).check(1e-5);
}

/// Equal values have no deviation; eps alone divides.
#[test]
fn constant_input() {
    let args = GroupNormArgs {
        silu: false,
        ..GROUPS
    };
    let case = Case::new(Kernel::GroupNorm(args), 1.0);
    case.with(Role::Input, vec![3.5; 2 * 35 * 32]).check(1e-6);
}

const PARTS: GroupStatisticsArgs = GroupStatisticsArgs {
    positions: 35,
    slice_positions: 8,
    channels: 64,
    groups: 32,
    input: Precision::F32,
};

#[test]
fn parts_of_group_norm() {
    for precision in PRECISIONS {
        for (positions, channels) in [(35, 64), (9, 320), (700, 96), (8, 32)] {
            let statistics = GroupStatisticsArgs {
                positions,
                channels,
                input: precision,
                ..PARTS
            };
            Case::new(Kernel::GroupStatistics(statistics), 1.0).check(1e-5);
            for (groups, silu, in_place) in [(32, true, false), (channels / 2, false, true)] {
                let apply = GroupApplyArgs {
                    positions,
                    channels,
                    groups,
                    silu,
                    input: precision,
                    output: precision,
                    in_place,
                };
                Case::new(Kernel::GroupApply(apply), 1.0).check(tolerance(precision));
            }
        }
    }
    for positions in [1, 64, 1000, 5000] {
        let combine = GroupCombineArgs {
            positions,
            slice_positions: 8,
            channels: 64,
            groups: 32,
            eps: 1e-5,
        };
        let case = Case::new(Kernel::GroupCombine(combine), 1.0);
        // sums of squares are not negative
        let partials = case.values.get(Role::Input).iter().map(|x| x.abs());
        let partials = partials.collect();
        case.with(Role::Input, partials).check(1e-5);
    }
}

/// Mean 1000, deviation 0.4: each slice's mean is exact to a float32's last digit, and so is what the parts give together.
#[test]
fn parts_of_a_large_mean_cost_no_digits() {
    let far: Vec<f32> = (0..1024 * 64)
        .map(|i| 1000.0 + 0.1 * ((i * 7 % 13) as f32 - 6.0))
        .collect();
    let statistics = GroupStatisticsArgs {
        positions: 1024,
        slice_positions: 64,
        ..PARTS
    };
    let case = Case::new(Kernel::GroupStatistics(statistics), 1.0).with(Role::Input, far);
    let (gpu, twin) = (case.gpu(), case.twin());
    for (pair, exact) in gpu.chunks_exact(2).zip(twin.chunks_exact(2)) {
        assert!((f64::from(pair[0]) - exact[0]).abs() < 2e-4, "mean");
        assert!(
            (f64::from(pair[1]) / exact[1] - 1.0).abs() < 1e-4,
            "squares"
        );
    }
    let combine = GroupCombineArgs {
        positions: 1024,
        slice_positions: 64,
        channels: 64,
        groups: 32,
        eps: 1e-5,
    };
    let case = Case::new(Kernel::GroupCombine(combine), 1.0).with(Role::Input, gpu);
    for (pair, exact) in case
        .gpu()
        .chunks_exact(2)
        .zip(case.twin().chunks_exact(2))
        .take(32)
    {
        assert!(
            (f64::from(pair[1]) / exact[1] - 1.0).abs() < 1e-4,
            "deviation"
        );
    }
}

#[test]
fn layer_norm() {
    for precision in PRECISIONS {
        for channels in [2, 30, 64, 320, 768] {
            for in_place in [false, true] {
                let args = LayerNormArgs {
                    channels,
                    in_place,
                    input: precision,
                    output: precision,
                    ..ROWS
                };
                Case::new(Kernel::LayerNorm(args), 1.0).check(tolerance(precision));
            }
        }
    }
    let mixed = LayerNormArgs {
        input: Precision::F16,
        ..ROWS
    };
    Case::new(Kernel::LayerNorm(mixed), 1.0).check(1e-5);
}
