//! Attention, and the embedding that begins the text encoder.

use super::{arena, norms::output_access, weight};
use crate::kernels::{Access, Operand, Precision, Role, table_bytes};

/// How attention is computed. All forms give the softmax in float32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionForm {
    /// Scores of one head of one picture and `rows` of its queries at a time, float32, in scratch.
    Sliced {
        /// Queries a slice; the last slice may have fewer. `1..=queries`.
        rows: usize,
    },
    /// Scores of all heads of all pictures at once, float32, in scratch: what the other forms save is measured against it.
    AllHeads,
    /// Online softmax in workgroup memory: no score matrix, no scratch.
    Flash,
}

/// `softmax(q k^T / sqrt(head_dim)) v` for each head; head `h` is channels `h * head_dim..` of each operand.
///
/// Operands in order: `Query [batch, queries, num_heads * head_dim]`, `Key [batch, keys, ...]`, `Value [batch, keys, ...]`,
/// `[Scratch]`, `Output [batch, queries, ...]`. In place there is no `Query`: the output holds the queries before the call; a kernel
/// has to read a head's tile of queries before it writes that tile, and no other tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionArgs {
    /// Pictures or prompts.
    pub batch: usize,
    /// Heads.
    pub num_heads: usize,
    /// Channels of a head.
    pub head_dim: usize,
    /// Queries of a picture.
    pub queries: usize,
    /// Keys of a picture.
    pub keys: usize,
    /// Query `i` sees keys `0..=i`.
    pub causal: bool,
    /// How it is computed.
    pub form: AttentionForm,
    /// Of all operands.
    pub precision: Precision,
    /// The output replaces the queries.
    pub in_place: bool,
}

impl AttentionArgs {
    /// Float32 scores `[rows, keys]` of one slice, or `[batch, num_heads, queries, keys]`; `keys` rounded up to a multiple of 4. Nothing for the
    /// flash form.
    #[must_use]
    pub const fn scratch_bytes(&self) -> u64 {
        let rows = match self.form {
            AttentionForm::Sliced { rows } => rows,
            AttentionForm::AllHeads => self.batch * self.num_heads * self.queries,
            AttentionForm::Flash => 0,
        };
        4 * (rows * self.keys.next_multiple_of(4)) as u64
    }

    /// Multiply-adds of both products. The causal mask is not subtracted.
    #[must_use]
    pub const fn macs(&self) -> u64 {
        2 * (self.batch * self.num_heads * self.head_dim * self.queries) as u64 * self.keys as u64
    }

    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let channels = self.num_heads * self.head_dim;
        let q = self.precision.bytes(self.batch * self.queries * channels);
        let kv = self.precision.bytes(self.batch * self.keys * channels);
        let mut list = Vec::with_capacity(5);
        if !self.in_place {
            list.push(arena(Role::Query, Access::Read, q));
        }
        list.push(arena(Role::Key, Access::Read, kv));
        list.push(arena(Role::Value, Access::Read, kv));
        if self.scratch_bytes() > 0 {
            list.push(arena(Role::Scratch, Access::Write, self.scratch_bytes()));
        }
        list.push(arena(Role::Output, output_access(self.in_place), q));
        list
    }
}

/// `out[b][t] = token_table[ids[b][t]] + position_table[t]`. An id past the table reads the last row.
///
/// Operands in order: `Ids [batch, tokens] u32`, `TokenTable [rows][cp]`, `PositionTable [positions][cp]`, `Output [batch, tokens, channels]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddingArgs {
    /// Prompts.
    pub batch: usize,
    /// Tokens of a prompt, at most `positions`.
    pub tokens: usize,
    /// Channels of a row.
    pub channels: usize,
    /// Rows of the token table.
    pub rows: usize,
    /// Rows of the position table.
    pub positions: usize,
    /// Of the output.
    pub output: Precision,
}

impl EmbeddingArgs {
    /// The operands in binding order.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        let ids = self.batch * self.tokens;
        vec![
            arena(Role::Ids, Access::Read, 4 * ids as u64),
            weight(Role::TokenTable, table_bytes(self.rows, self.channels)),
            weight(
                Role::PositionTable,
                table_bytes(self.positions, self.channels),
            ),
            arena(
                Role::Output,
                Access::Write,
                self.output.bytes(ids * self.channels),
            ),
        ]
    }
}
