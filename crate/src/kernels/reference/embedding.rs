//! Twin of the embedding.

use super::Values;
use crate::kernels::{EmbeddingArgs, Role};

pub(super) fn embedding(args: &EmbeddingArgs, values: &Values) -> Vec<f64> {
    let mut out = Vec::with_capacity(args.batch * args.tokens * args.channels);
    for (row, id) in values.ids.iter().enumerate() {
        let id = (*id as usize).min(args.rows - 1);
        let position = row % args.tokens;
        out.extend((0..args.channels).map(|c| {
            values.at(Role::TokenTable, id * args.channels + c)
                + values.at(Role::PositionTable, position * args.channels + c)
        }));
    }
    out
}
