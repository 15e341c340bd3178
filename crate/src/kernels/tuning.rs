//! Choices that change the speed of a kernel and not one bit of its result, and the table of those that were measured.

use std::fmt::Write as _;

use super::Kernel;

/// Size of the tile of a matrix product. It changes the speed and not one bit of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tile {
    /// 64 x 64 outputs by 256 threads, 4 x 4 each.
    Large,
    /// 32 x 32 outputs by 64 threads, 4 x 4 each: more workgroups, for small products.
    Small,
    /// 64 x 64 outputs by 64 threads, 8 x 8 each: half the reads of workgroup memory, twice the registers. For adapters that are
    /// software on a CPU, where such a read is slow and registers are many.
    Wide,
}

impl Tile {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Large, Self::Small, Self::Wide];

    /// Rows and columns of the outputs.
    #[must_use]
    pub const fn side(self) -> usize {
        match self {
            Self::Large | Self::Wide => 64,
            Self::Small => 32,
        }
    }

    /// Rows and columns of one thread.
    pub(super) const fn per_thread(self) -> usize {
        match self {
            Self::Large | Self::Small => 4,
            Self::Wide => 8,
        }
    }

    /// Tiles along the columns and along the rows of a product.
    pub(super) fn grid(self, rows: usize, columns: usize) -> [usize; 2] {
        [columns.div_ceil(self.side()), rows.div_ceil(self.side())]
    }

    /// Its name in a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Small => "small",
            Self::Wide => "wide",
        }
    }
}

/// What is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// Rows by a matrix of weights.
    Gemm,
    /// Patches of a picture by a matrix of weights.
    Conv2d,
    /// Queries by keys, or scores by values.
    Attention,
}

impl Product {
    const ALL: [Self; 3] = [Self::Gemm, Self::Conv2d, Self::Attention];

    const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Conv2d => "conv2d",
            Self::Attention => "attention",
        }
    }
}

/// Products of about one size: within a factor of four in rows and in columns. One tile is chosen for all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShapeClass(u8);

impl ShapeClass {
    const SIZES: usize = 8;
    const COUNT: usize = 3 * Self::SIZES * Self::SIZES;

    /// The class of a product with that many rows and columns of outputs.
    #[must_use]
    pub fn new(product: Product, rows: usize, columns: usize) -> Self {
        let size = |extent: usize| {
            let log4 = (extent.max(1).ilog2() / 2) as usize;
            log4.min(Self::SIZES - 1)
        };
        Self::at(product, size(rows), size(columns))
    }

    fn at(product: Product, rows: usize, columns: usize) -> Self {
        let place = (product as usize * Self::SIZES + rows) * Self::SIZES + columns;
        // below COUNT, which is below 256
        Self(place as u8)
    }

    /// `conv2d 1024x256`: the smallest extents of the class.
    #[must_use]
    pub fn name(self) -> String {
        let place = usize::from(self.0);
        let (rows, columns) = (place / Self::SIZES % Self::SIZES, place % Self::SIZES);
        let product = Product::ALL[place / Self::SIZES / Self::SIZES];
        format!(
            "{} {}x{}",
            product.name(),
            1 << (2 * rows),
            1 << (2 * columns)
        )
    }

    fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(|place| Self(place as u8))
    }
}

impl Kernel {
    /// The class by which this call's tile is chosen, where it has one. Flash attention has tiles of its own.
    #[must_use]
    pub fn shape_class(&self) -> Option<ShapeClass> {
        match self {
            Self::Gemm(args) => Some(args.shape_class()),
            Self::Conv2d(args) => args.shape_class(),
            _ => None,
        }
    }
}

/// Choices that change the speed of a launch and not one bit of its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// The tile of every product that has no measured one; without it a rule decides by the number of workgroups.
    pub tile: Option<Tile>,
    measured: [Option<Tile>; ShapeClass::COUNT],
}

impl Default for Tuning {
    fn default() -> Self {
        Self::by_rule(None)
    }
}

impl Tuning {
    /// With fewer large tiles than this a GPU of usual size would stand idle in part.
    const WORKGROUPS_WANTED: usize = 64;

    /// For an adapter that is software on a CPU (lavapipe, SwiftShader): measured there, [`Tile::Wide`] is the fastest at every size.
    pub const SOFTWARE: Self = Self::by_rule(Some(Tile::Wide));

    /// Nothing measured, and one tile for all products, or the rule.
    #[must_use]
    pub const fn by_rule(tile: Option<Tile>) -> Self {
        Self {
            tile,
            measured: [None; ShapeClass::COUNT],
        }
    }

    /// Takes a tile for a class.
    pub fn measured(&mut self, class: ShapeClass, tile: Tile) {
        self.measured[usize::from(class.0)] = Some(tile);
    }

    /// The tile of a product of `m` rows and that many columns.
    pub(super) fn tile(&self, product: Product, m: usize, columns: usize) -> Tile {
        let class = ShapeClass::new(product, m, columns);
        let chosen = self.measured[usize::from(class.0)].or(self.tile);
        let [large_columns, large_rows] = Tile::Large.grid(m, columns);
        chosen.unwrap_or(if large_columns * large_rows >= Self::WORKGROUPS_WANTED {
            Tile::Large
        } else {
            Tile::Small
        })
    }

    /// What was measured, as text that [`Self::read`] understands: `conv2d 1024x256 large;gemm 64x256 small`.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (class, tile) in ShapeClass::all().zip(self.measured) {
            let Some(tile) = tile else { continue };
            let separator = if text.is_empty() { "" } else { ";" };
            // writing to a String cannot fail
            let _ = write!(text, "{separator}{} {}", class.name(), tile.name());
        }
        text
    }

    /// Takes what [`Self::text`] of an earlier time says. Nothing is taken of a text that has anything else in it.
    #[must_use]
    pub fn read(self, text: &str) -> Option<Self> {
        // where the text was kept, anyone may have written: one with more than an entry a class is not read to its end
        if text.split(';').nth(ShapeClass::COUNT + 1).is_some() {
            return None;
        }
        let mut tuning = self;
        for entry in text.split(';').filter(|entry| !entry.is_empty()) {
            let (class, tile) = entry.rsplit_once(' ')?;
            let class = ShapeClass::all().find(|known| known.name() == class)?;
            let tile = Tile::ALL.into_iter().find(|known| known.name() == tile)?;
            tuning.measured(class, tile);
        }
        Some(tuning)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_measured_class_decides_before_the_rule() {
        let mut tuning = Tuning::default();
        assert_eq!(tuning.tile(Product::Gemm, 4096, 320), Tile::Large);
        assert_eq!(tuning.tile(Product::Gemm, 64, 320), Tile::Small);
        tuning.measured(ShapeClass::new(Product::Gemm, 4096, 320), Tile::Wide);
        assert_eq!(tuning.tile(Product::Gemm, 5000, 1000), Tile::Wide);
        assert_eq!(tuning.tile(Product::Conv2d, 5000, 1000), Tile::Large);
        assert_eq!(
            Tuning::SOFTWARE.tile(Product::Conv2d, 5000, 1000),
            Tile::Wide
        );
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let mut tuning = Tuning::default();
        tuning.measured(ShapeClass::new(Product::Conv2d, 1024, 320), Tile::Small);
        tuning.measured(ShapeClass::new(Product::Attention, 1, 1 << 30), Tile::Wide);
        let text = tuning.text();
        assert_eq!(text, "conv2d 1024x256 small;attention 1x16384 wide");
        assert_eq!(Tuning::default().read(&text), Some(tuning));
        assert_eq!(Tuning::default().read(""), Some(Tuning::default()));
        for wrong in [
            "conv2d 1024x256",
            "conv2d 1024x257 small",
            "x",
            "conv2d 1024x256 huge",
            &"conv2d 1024x256 small;".repeat(1000),
        ] {
            assert_eq!(Tuning::default().read(wrong), None, "{wrong}");
        }
    }
}
