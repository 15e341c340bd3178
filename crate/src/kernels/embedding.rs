//! Launch of the embedding.

use super::{
    EmbeddingArgs, Launch, Limits, Role,
    builder::{Builder, OUT, fold, unit, word},
    gemm::PRECISION,
};

const EMBEDDING: &str = include_str!("embedding.wgsl");

pub(super) fn launches(args: &EmbeddingArgs, limits: &Limits) -> Vec<Launch> {
    let unit = unit(&[args.channels]);
    // a table's row is whole words; an odd channel is half a word
    let (table, table_values) = if unit == 4 {
        ("vec2<u32>", 4)
    } else {
        ("u32", 2)
    };
    let count = args.batch * args.tokens * args.channels / unit;
    let builder = Builder::new(&args.operands())
        .stored(OUT, args.output, unit)
        .set("TABLE", table)
        .set("TABLE_UNITS", table_values / unit)
        .set("UNIT1", unit == 1)
        .bind(Role::Ids, "IDS", "B_IDS")
        .bind(Role::TokenTable, "TOKEN_TABLE", "B_TOKEN_TABLE")
        .bind(Role::PositionTable, "POSITION_TABLE", "B_POSITION_TABLE")
        .bind(Role::Output, "OUTPUT", "B_OUTPUT");
    vec![
        builder.launch(
            "embedding",
            "embedding",
            &[PRECISION, EMBEDDING],
            &[
                args.tokens,
                args.channels / unit,
                args.channels.next_multiple_of(2) / table_values,
                args.rows,
                count,
            ]
            .map(word),
            fold(count, limits),
        ),
    ]
}
