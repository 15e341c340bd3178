//! Twin of group norm.

use super::{Values, silu};
use crate::kernels::{GroupNormArgs, Role};

pub(super) fn group_norm(args: &GroupNormArgs, values: &Values) -> Vec<f64> {
    let c2 = args.second_source.unwrap_or(0);
    let c1 = args.channels - c2;
    let of_group = args.channels / args.groups;
    let value = |picture: usize, position: usize, channel: usize| {
        let row = picture * args.positions + position;
        if channel < c1 {
            values.input_at(Role::Input, args.in_place, row * c1 + channel)
        } else {
            values.at(Role::SecondInput, row * c2 + channel - c1)
        }
    };
    let mut out = vec![0.0; args.batch * args.positions * args.channels];
    for (picture, group) in
        (0..args.batch).flat_map(|picture| (0..args.groups).map(move |group| (picture, group)))
    {
        let places: Vec<(usize, usize)> = (0..args.positions)
            .flat_map(|position| (0..of_group).map(move |c| (position, group * of_group + c)))
            .collect();
        let each = |f: &dyn Fn(f64) -> f64| {
            let sum: f64 = places
                .iter()
                .map(|(position, channel)| f(value(picture, *position, *channel)))
                .sum();
            sum / places.len() as f64
        };
        let mean = each(&|x| x);
        let variance = each(&|x| (x - mean) * (x - mean));
        for (position, channel) in &places {
            let normed = (value(picture, *position, *channel) - mean)
                / (variance + f64::from(args.eps)).sqrt();
            let x = normed * values.at(Role::Scale, *channel) + values.at(Role::Shift, *channel);
            let at = (picture * args.positions + position) * args.channels + channel;
            if let Some(place) = out.get_mut(at) {
                *place = if args.silu { silu(x) } else { x };
            }
        }
    }
    out
}
