//! Twin of attention, whichever form the kernel takes.

use super::Values;
use crate::kernels::{AttentionArgs, Role};

pub(super) fn attention(args: &AttentionArgs, values: &Values) -> Vec<f64> {
    let channels = args.num_heads * args.head_dim;
    let mut out = vec![0.0; args.batch * args.queries * channels];
    for (picture, head) in
        (0..args.batch).flat_map(|picture| (0..args.num_heads).map(move |head| (picture, head)))
    {
        let first = head * args.head_dim;
        for query in 0..args.queries {
            let query_at = (picture * args.queries + query) * channels + first;
            let keys = if args.causal {
                args.keys.min(query + 1)
            } else {
                args.keys
            };
            let key_at = |key: usize| (picture * args.keys + key) * channels + first;
            let scores: Vec<f64> = (0..keys)
                .map(|key| {
                    let product = |d: usize| {
                        values.input_at(Role::Query, args.in_place, query_at + d)
                            * values.at(Role::Key, key_at(key) + d)
                    };
                    (0..args.head_dim).map(product).sum::<f64>() / (args.head_dim as f64).sqrt()
                })
                .collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for d in 0..args.head_dim {
                let value = |(key, weight): (usize, &f64)| {
                    weight / sum * values.at(Role::Value, key_at(key) + d)
                };
                if let Some(place) = out.get_mut(query_at + d) {
                    *place = weights.iter().enumerate().map(value).sum();
                }
            }
        }
    }
    out
}
