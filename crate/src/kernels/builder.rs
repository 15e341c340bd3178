//! How a launcher puts a launch together: operands become bindings, sizes and precisions become names of the source.

use super::{
    Binding, ChannelRows, Launch, Limits, Operand, Precision, Residual, Role, Tile,
    template::Template,
};

/// A launch that is being put together.
pub(super) struct Builder {
    operands: Vec<Operand>,
    bindings: Vec<Binding>,
    template: Template,
}

impl Builder {
    pub(super) fn new(operands: &[Operand]) -> Self {
        Self {
            operands: operands.to_vec(),
            bindings: Vec::new(),
            template: Template::new(),
        }
    }

    /// Gives a name of the source its value.
    pub(super) fn set(mut self, name: &'static str, value: impl ToString) -> Self {
        self.template = self.template.set(name, value);
        self
    }

    /// How the operand `name` is stored and how many of its channels are read at once: `NAME`, `NAME_NAME`, `NAME_V`, `NAME_UNIT`.
    pub(super) fn stored(self, names: StoredAs, precision: Precision, unit: usize) -> Self {
        self.set(names.storage, storage_type(precision, unit))
            .set(names.conversion, conversion(precision, unit))
            .set(names.value, value_type(unit))
            .set(names.unit, unit)
    }

    /// Binds the whole operand of this role, where the kernel has one; `name` becomes the number of the binding.
    pub(super) fn bind(mut self, role: Role, flag: &'static str, name: &'static str) -> Self {
        let found = self.operands.iter().position(|known| known.role == role);
        let Some((operand, bytes)) = found.and_then(|at| Some((at, self.operands.get(at)?.bytes)))
        else {
            return self;
        };
        self.template = self.template.set(flag, true).set(name, self.bindings.len());
        self.bindings.push(Binding {
            operand,
            offset_bytes: 0,
            bytes,
        });
        self
    }

    /// The finished launch; the uniform is the binding after the operands.
    pub(super) fn launch(
        self,
        label: &'static str,
        entry_point: &'static str,
        parts: &[&str],
        params: &[u32],
        workgroups: [u32; 3],
    ) -> Launch {
        let mut params = params.to_vec();
        params.resize(params.len().next_multiple_of(4), 0);
        let template = self
            .template
            .set("B_PARAMS", self.bindings.len())
            .set("ENTRY", entry_point);
        Launch {
            label,
            entry_point,
            source: template.expand(parts),
            bindings: self.bindings,
            params,
            workgroups,
        }
    }
}

/// The four names under which a source asks how an operand is stored.
#[derive(Clone, Copy)]
pub(super) struct StoredAs {
    storage: &'static str,
    conversion: &'static str,
    value: &'static str,
    unit: &'static str,
}

/// Of what is read.
pub(super) const IN: StoredAs = StoredAs {
    storage: "IN",
    conversion: "IN_NAME",
    value: "IN_V",
    unit: "IN_UNIT",
};

/// Of what is written.
pub(super) const OUT: StoredAs = StoredAs {
    storage: "OUT",
    conversion: "OUT_NAME",
    value: "V",
    unit: "UNIT",
};

/// The largest of 4, 2 and 1 that divides all of `sizes`: how many channels are read at once.
pub(super) fn unit(sizes: &[usize]) -> usize {
    let divides = |by: usize| sizes.iter().all(|size| size.is_multiple_of(by));
    [4, 2].into_iter().find(|by| divides(*by)).unwrap_or(1)
}

fn storage_type(precision: Precision, unit: usize) -> &'static str {
    match (precision, unit) {
        (Precision::F32, 4) => "vec4<f32>",
        (Precision::F32, 2) => "vec2<f32>",
        (Precision::F32, _) => "f32",
        (Precision::F16, 4) => "vec2<u32>",
        // a single float16 has no word of its own: the layout asks for even channels
        (Precision::F16, _) => "u32",
    }
}

fn conversion(precision: Precision, unit: usize) -> String {
    match precision {
        Precision::F32 => format!("f32x{unit}"),
        Precision::F16 => format!("f16x{unit}"),
    }
}

pub(super) fn value_type(unit: usize) -> &'static str {
    match unit {
        4 => "vec4<f32>",
        2 => "vec2<f32>",
        _ => "f32",
    }
}

/// A size as a word of a uniform.
pub(super) fn word(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// `threads` in workgroups of 64, folded into two dimensions where one is too short for them.
pub(super) fn fold(threads: usize, limits: &Limits) -> [u32; 3] {
    fold_groups(threads.div_ceil(64), limits)
}

/// Workgroups that know themselves by `y * groups.x + x`; those past the count do nothing.
pub(super) fn fold_groups(groups: usize, limits: &Limits) -> [u32; 3] {
    let most = limits.max_workgroups_per_dimension.max(1) as usize;
    let rows = groups.div_ceil(most).max(1);
    [word(groups.div_ceil(rows).max(1)), word(rows), 1]
}

/// The names of an epilogue: what is added to a product before it is stored.
pub(super) struct Epilogue {
    pub(super) output: Precision,
    pub(super) n: usize,
    pub(super) geglu: bool,
    pub(super) activation: &'static str,
    pub(super) channel_add: Option<ChannelRows>,
    pub(super) residual: Residual,
}

impl Epilogue {
    /// Binds and names all that `epilogue.wgsl` reads, the output last.
    pub(super) fn add_to(&self, builder: Builder) -> Builder {
        let quad = if self.geglu { 2 } else { 4 };
        let unit = unit(&[self.n, quad]);
        let rows = match self.channel_add {
            None => "CHANNEL_ADD_NONE",
            Some(ChannelRows::One) => "CHANNEL_ADD_ONE",
            Some(ChannelRows::PerPicture) => "CHANNEL_ADD_PICTURE",
            Some(ChannelRows::Step { .. }) => "CHANNEL_ADD_STEP",
        };
        builder
            .stored(OUT, self.output, unit)
            .set(out_unit(unit), true)
            .set("QUAD", quad)
            .set("PIECES", quad / unit)
            .set("ACTIVATION", self.activation)
            .set(rows, true)
            .set("RESIDUAL_IN_PLACE", self.residual == Residual::InPlace)
            .bind(Role::Bias, "BIAS", "B_BIAS")
            .bind(Role::ChannelAdd, "CHANNEL_ADD", "B_CHANNEL_ADD")
            .bind(Role::Step, "STEP", "B_STEP")
            .bind(Role::Residual, "RESIDUAL", "B_RESIDUAL")
            .bind(Role::Output, "OUTPUT", "B_OUTPUT")
    }
}

/// Names of `tile.wgsl`.
pub(super) fn tile_names(builder: Builder, tile: Tile) -> Builder {
    let side = tile.side() / tile.per_thread();
    let rows_per_pass = side * side / 4;
    builder
        .set("TILE", tile.side())
        .set("TILE_WORDS", tile.side() * 5)
        .set("SIDE", side)
        .set("ROWS", tile.per_thread())
        .set("COLUMN_QUADS", tile.per_thread() / 4)
        .set("ROWS_PER_PASS", rows_per_pass)
        .set("PASSES", tile.side() / rows_per_pass)
}

/// Names of `reduce.wgsl`: workgroups of `threads`, a power of two, that add values in units of `unit`.
pub(super) fn reduce_names(builder: Builder, threads: usize, unit: usize) -> Builder {
    builder
        .set("THREADS", threads)
        // about the root of their number: as many parts as values in a part
        .set("PARTS", 1 << (threads.ilog2() / 2))
        .set("IN_V", value_type(unit))
        .set(in_unit(unit), true)
}

/// The flag that tells the unit of what is read.
pub(super) const fn in_unit(unit: usize) -> &'static str {
    match unit {
        4 => "IN_UNIT4",
        2 => "IN_UNIT2",
        _ => "IN_UNIT1",
    }
}

/// The flag that tells the unit of what is written.
pub(super) const fn out_unit(unit: usize) -> &'static str {
    match unit {
        4 => "UNIT4",
        2 => "UNIT2",
        _ => "UNIT1",
    }
}

/// Names of a left operand that is read `unit` channels at a time and joined to four.
pub(super) fn left_names(builder: Builder, precision: Precision, unit: usize) -> Builder {
    let pieces: Vec<String> = (0..4 / unit).map(|i| format!("v{i}")).collect();
    builder
        .stored(IN, precision, unit)
        .set("IN_PIECES", 4 / unit)
        .set("IN_JOIN", pieces.join(", "))
}
