use latent_canvas::kernels::{
    ChannelRows, ElementwiseArgs, ElementwiseOp, Kernel, Limits, Precision, Role, Tuning,
};
use latent_canvas_tests::kernel_case::{Case, may_be_in_place};

use super::{PRECISIONS, tolerance};

const PLAIN: ElementwiseArgs = ElementwiseArgs {
    op: ElementwiseOp::Add,
    batch: 2,
    height: 5,
    width: 7,
    channels: 12,
    input: Precision::F32,
    output: Precision::F32,
    in_place: false,
};

const OPS: [ElementwiseOp; 11] = [
    ElementwiseOp::Add,
    ElementwiseOp::AddChannels {
        rows: ChannelRows::One,
    },
    ElementwiseOp::AddChannels {
        rows: ChannelRows::PerPicture,
    },
    ElementwiseOp::AddChannels {
        rows: ChannelRows::Step { steps: 4 },
    },
    ElementwiseOp::Silu,
    ElementwiseOp::QuickGelu,
    ElementwiseOp::Gelu,
    ElementwiseOp::Geglu,
    ElementwiseOp::ConcatChannels { first: 4 },
    ElementwiseOp::ConcatChannels { first: 6 },
    ElementwiseOp::UpsampleNearest2d {
        height: 3,
        width: 4,
    },
];

#[test]
fn every_operation() {
    for op in OPS {
        for channels in [12, 10] {
            for precision in PRECISIONS {
                for in_place in [false, true] {
                    if in_place && !may_be_in_place(op) {
                        continue;
                    }
                    let args = ElementwiseArgs {
                        op,
                        channels,
                        in_place,
                        input: precision,
                        output: precision,
                        ..PLAIN
                    };
                    Case::new(Kernel::Elementwise(args), 1.0).check(tolerance(precision));
                }
            }
        }
        let odd = ElementwiseArgs {
            op,
            channels: 7,
            ..PLAIN
        };
        Case::new(Kernel::Elementwise(odd), 1.0).check(1e-6);
        let mixed = ElementwiseArgs {
            op,
            input: Precision::F16,
            ..PLAIN
        };
        Case::new(Kernel::Elementwise(mixed), 1.0).check(1e-6);
    }
}

/// Value by value, from 0 to far where exp and erf end: each within 5e-7 of itself or of 1.
#[test]
fn functions_over_their_whole_range() {
    let list: Vec<f32> = (0..840)
        .map(|i| {
            let x = 10_f32.powf((i / 2) as f32 / 420.0 * 8.0 - 4.0);
            if i % 2 == 0 { x } else { -x }
        })
        .collect();
    for op in [
        ElementwiseOp::Silu,
        ElementwiseOp::QuickGelu,
        ElementwiseOp::Gelu,
    ] {
        let args = ElementwiseArgs { op, ..PLAIN };
        let case = Case::new(Kernel::Elementwise(args), 1.0).with(Role::Input, list.clone());
        for ((x, gpu), twin) in list.iter().zip(case.gpu()).zip(case.twin()) {
            let apart = (f64::from(gpu) - twin).abs();
            assert!(
                apart <= 5e-7 * twin.abs().max(1.0),
                "{op:?} of {x}: {gpu} and {twin}"
            );
        }
    }
}

/// Past float16's range a stored value is its end, never infinity.
#[test]
fn float16_saturates() {
    let args = ElementwiseArgs {
        output: Precision::F16,
        ..PLAIN
    };
    let large = Case::new(Kernel::Elementwise(args), 1.0)
        .with(Role::Input, vec![-1e6; args.len()])
        .with(Role::SecondInput, vec![0.0; args.len()]);
    assert!(large.gpu().iter().all(|x| *x == -65504.0));
}

#[test]
fn more_workgroups_than_one_dimension_takes() {
    let args = ElementwiseArgs {
        width: 300,
        ..PLAIN
    };
    let limits = Limits {
        max_workgroups_per_dimension: 16,
        ..Limits::DEFAULT
    };
    let launches = Kernel::Elementwise(args)
        .launches(&limits, &Tuning::default())
        .unwrap();
    let [x, y, _] = launches[0].workgroups;
    assert!(x <= 16 && y > 1 && u64::from(x * y) * 64 * 4 >= args.len() as u64);
    let case = Case {
        limits,
        ..Case::new(Kernel::Elementwise(args), 1.0)
    };
    case.check(1e-6);
}

#[test]
fn too_much_is_refused_with_the_limit() {
    let args = ElementwiseArgs {
        width: 1 << 22,
        ..PLAIN
    };
    let error = Kernel::Elementwise(args)
        .launches(&Limits::DEFAULT, &Tuning::default())
        .unwrap_err();
    assert_eq!(error.code(), "limit-too-small");
    assert!(
        error.to_string().contains("maxStorageBufferBindingSize"),
        "{error}"
    );
    let limits = Limits {
        max_storage_buffers: 2,
        ..Limits::DEFAULT
    };
    let error = Kernel::Elementwise(PLAIN)
        .launches(&limits, &Tuning::default())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("maxStorageBuffersPerShaderStage"),
        "{error}"
    );
    let limits = Limits {
        max_workgroups_per_dimension: 1,
        ..Limits::DEFAULT
    };
    let many = ElementwiseArgs {
        width: 1000,
        ..PLAIN
    };
    let error = Kernel::Elementwise(many)
        .launches(&limits, &Tuning::default())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("maxComputeWorkgroupsPerDimension"),
        "{error}"
    );
}
