//! The twins themselves against torch 2.9.1 (float64), on values that a formula gives.

use latent_canvas::kernels::{
    Activation, AttentionArgs, AttentionForm, Conv2dArgs, GemmArgs, GroupNormArgs, Kernel,
    LayerNormArgs, Precision, Residual, Role,
    reference::{Values, run},
};

/// `torch.tensor([((i * step) % modulus - modulus // 2) / 4 for i in range(count)])`
fn sequence(count: usize, modulus: usize, step: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * step % modulus) as f32 - (modulus / 2) as f32) / 4.0)
        .collect()
}

fn plus_one(list: Vec<f32>) -> Vec<f32> {
    list.iter().map(|x| x + 1.0).collect()
}

fn check(kernel: Kernel, values: &Values, torch: &[f64]) {
    let out = run(&kernel, values);
    assert!(out.len() >= torch.len(), "{kernel:?}");
    for (twin, torch) in out.iter().zip(torch) {
        assert!(
            (twin - torch).abs() < 1e-8,
            "{kernel:?}: {twin}, torch {torch}"
        );
    }
}

const CONV: Conv2dArgs = Conv2dArgs {
    batch: 1,
    height: 4,
    width: 3,
    channels_in: 2,
    channels_out: 3,
    kernel: 3,
    stride: 1,
    padding_before: 1,
    padding_after: 1,
    upsample: None,
    channel_add: None,
    residual: Residual::None,
    k_slices: 1,
    strip: None,
    input: Precision::F32,
    output: Precision::F32,
};

/// The weight is `[out, ky, kx, in]` here, torch's permuted.
#[test]
fn conv2d() {
    let values = Values::new()
        .with(Role::Input, sequence(24, 11, 7))
        .with(Role::Weight, sequence(54, 13, 5))
        .with(Role::Bias, sequence(3, 11, 7));
    // F.conv2d(F.pad(x, (0, 1, 0, 1)), w, b, stride=2)
    let down = Conv2dArgs {
        stride: 2,
        padding_before: 0,
        ..CONV
    };
    check(
        Kernel::Conv2d(down),
        &values,
        &[1.0, -3.0625, -7.4375, -3.1875, 0.0625, 1.375],
    );
    // F.conv2d(F.interpolate(x, scale_factor=2, mode="nearest")[:, :, :7], w, b, padding=1)
    let up = Kernel::Conv2d(Conv2dArgs {
        upsample: Some([7, 6]),
        ..CONV
    });
    check(up, &values, &[0.5625, 3.0625, -1.25, 0.0, 3.75, -0.9375]);
    let out = run(&up, &values);
    assert_eq!(out.len(), 7 * 6 * 3);
    assert!((out.iter().sum::<f64>() + 66.4375).abs() < 1e-8);
    assert_eq!(out[out.len() - 3..], [0.4375, 0.0, -4.8125]);
}

#[test]
fn norms() {
    let args = GroupNormArgs {
        batch: 1,
        positions: 12,
        channels: 2,
        second_source: None,
        groups: 2,
        eps: 1e-5,
        silu: true,
        input: Precision::F32,
        output: Precision::F32,
        in_place: false,
    };
    let values = Values::new()
        .with(Role::Input, sequence(24, 11, 7))
        .with(Role::Scale, plus_one(sequence(2, 5, 3)))
        .with(Role::Shift, sequence(2, 7, 2));
    let torch = [-0.275_870_04, 0.307_238_808, -0.268_041_747, 1.451_329_529];
    check(Kernel::GroupNorm(args), &values, &torch);
    let args = LayerNormArgs {
        rows: 3,
        channels: 4,
        eps: 1e-5,
        input: Precision::F32,
        output: Precision::F32,
        in_place: false,
    };
    let values = Values::new()
        .with(Role::Input, sequence(12, 11, 7))
        .with(Role::Scale, plus_one(sequence(4, 5, 3)))
        .with(Role::Shift, sequence(4, 7, 2));
    let torch = [-1.406_528_542, 0.406_528_542, -0.143_917_125, 2.719_585_626];
    check(Kernel::LayerNorm(args), &values, &torch);
}

/// `F.scaled_dot_product_attention(q, k, v, is_causal=True)` with two heads of two channels.
#[test]
fn causal_attention() {
    let args = AttentionArgs {
        batch: 1,
        num_heads: 2,
        head_dim: 2,
        queries: 4,
        keys: 4,
        causal: true,
        form: AttentionForm::Flash,
        precision: Precision::F32,
        in_place: false,
    };
    let values = Values::new()
        .with(Role::Query, sequence(16, 11, 7))
        .with(Role::Key, sequence(16, 13, 5))
        .with(Role::Value, sequence(16, 9, 4));
    let torch = [
        -1.0,
        0.0,
        1.0,
        -0.25,
        -0.387_372_285,
        -0.175_036_49,
        0.871_408_342,
        -0.378_591_658,
        -0.078_184_598,
        -0.491_966_388,
        0.556_958_189,
        0.151_071_9,
        -0.128_151_596,
        0.140_757_982,
        0.301_236_276,
        0.324_523_758,
    ];
    check(Kernel::Attention(args), &values, &torch);
}

/// `value, gate = (x @ w.T + b).chunk(2, -1); value * F.gelu(gate)`
#[test]
fn geglu() {
    let args = GemmArgs {
        m: 2,
        n: 2,
        k: 3,
        second_source: None,
        bias: true,
        activation: Activation::None,
        geglu: true,
        residual: Residual::None,
        k_slices: 1,
        input: Precision::F32,
        output: Precision::F32,
    };
    let values = Values::new()
        .with(Role::Input, sequence(6, 11, 7))
        .with(Role::Weight, sequence(12, 13, 5))
        .with(Role::Bias, sequence(4, 11, 7));
    check(
        Kernel::Gemm(args),
        &values,
        &[0.0, 2.500_306_804, 0.0, -3.786_882_031],
    );
}
