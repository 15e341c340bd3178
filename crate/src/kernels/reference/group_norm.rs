//! Twins of group norm and of its parts.

use super::{Values, silu};
use crate::kernels::{
    GroupApplyArgs, GroupCombineArgs, GroupNormArgs, GroupStatisticsArgs, Role,
    args::norms::statistics_stride,
};

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

/// Mean and sum of squared distances of each slice and group; nothing in the places that only align.
pub(super) fn statistics(args: &GroupStatisticsArgs, values: &Values) -> Vec<f64> {
    let of_group = args.channels / args.groups;
    let stride = statistics_stride(args.groups);
    let mut out = vec![0.0; 2 * args.slices() * stride];
    for (pair, place) in out.chunks_exact_mut(2).enumerate() {
        let (slice, group) = (pair / stride, pair % stride);
        if group >= args.groups {
            continue;
        }
        let first = slice * args.slice_positions;
        let last = args.positions.min(first + args.slice_positions);
        let list: Vec<f64> = (first..last)
            .flat_map(|position| (0..of_group).map(move |c| (position, group * of_group + c)))
            .map(|(position, channel)| values.at(Role::Input, position * args.channels + channel))
            .collect();
        let mean = list.iter().sum::<f64>() / list.len() as f64;
        let squares = list.iter().map(|x| (x - mean) * (x - mean)).sum();
        place.copy_from_slice(&[mean, squares]);
    }
    out
}

/// Mean and one by the deviation of each group.
pub(super) fn combine(args: &GroupCombineArgs, values: &Values) -> Vec<f64> {
    let of_group = (args.channels / args.groups) as f64;
    let stride = statistics_stride(args.groups);
    let count = args.positions as f64 * of_group;
    let mut out = vec![0.0; 2 * stride];
    for (group, place) in out.chunks_exact_mut(2).enumerate().take(args.groups) {
        let slices: Vec<[f64; 3]> = (0..args.slices())
            .map(|slice| {
                let first = slice * args.slice_positions;
                let last = args.positions.min(first + args.slice_positions);
                let at = 2 * (slice * stride + group);
                let [mean, squares] = [at, at + 1].map(|at| values.at(Role::Input, at));
                [mean, squares, (last - first) as f64 * of_group]
            })
            .collect();
        let mean = slices.iter().map(|[x, _, n]| x * n).sum::<f64>() / count;
        let squares: f64 = slices
            .iter()
            .map(|[x, squares, n]| squares + n * (x - mean) * (x - mean))
            .sum();
        let deviation = (squares / count + f64::from(args.eps)).sqrt();
        place.copy_from_slice(&[mean, 1.0 / deviation]);
    }
    out
}

/// The norm by statistics that are there.
pub(super) fn apply(args: &GroupApplyArgs, values: &Values) -> Vec<f64> {
    let of_group = args.channels / args.groups;
    (0..args.positions * args.channels)
        .map(|at| {
            let channel = at % args.channels;
            let pair = 2 * (channel / of_group);
            let [mean, factor] = [pair, pair + 1].map(|at| values.at(Role::Statistics, at));
            let normed = (values.input_at(Role::Input, args.in_place, at) - mean) * factor;
            let x = normed * values.at(Role::Scale, channel) + values.at(Role::Shift, channel);
            if args.silu { silu(x) } else { x }
        })
        .collect()
}
