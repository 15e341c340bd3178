//! A picture from tiles: where they lie, and how what they give is blended (diffusers `AutoencoderKL.tiled_decode`, `blend_v`, `blend_h`).
//!
//! Pure numbers. Other than in diffusers all tiles have one size, so that one plan decodes them all: the first begins and the last ends with the
//! picture, and those between are spread evenly. Each pair of neighbours is blended linearly over the middle of what they share, first along
//! rows, then along columns, so that the weights sum to 1 everywhere, also where four tiles meet, and equal values stay equal to the bit.

use std::ops::Range;

use crate::{Error, Result};

/// The tiles along one axis, in latents.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Axis {
    size: usize,
    tile: usize,
    /// Over how much of what they share two neighbours are blended, at most.
    overlap: usize,
    starts: Vec<usize>,
}

impl Axis {
    fn new(size: usize, tile: usize, overlap: usize) -> Self {
        let tile = tile.clamp(1, size.max(1));
        // more than a third of a tile, and three tiles could meet
        let overlap = overlap.min(tile / 3);
        let count = (size - tile).div_ceil(tile - overlap) + 1;
        let starts = (0..count)
            .map(|i| (i * (size - tile)).checked_div(count - 1).unwrap_or(0))
            .collect();
        Self {
            size,
            tile,
            overlap,
            starts,
        }
    }

    /// The pixels over which tile `i` is blended with the one before it, each latent `scale` pixels wide; from where they part to where the
    /// tile is alone.
    fn seam(&self, i: usize, scale: usize) -> Range<usize> {
        let Some(before) = i.checked_sub(1) else {
            return 0..0;
        };
        let (start, end) = (
            self.starts[i] * scale,
            (self.starts[before] + self.tile) * scale,
        );
        let width = (self.overlap * scale).min(end - start);
        let first = start + (end - start - width) / 2;
        first..first + width
    }
}

/// Tiles of one size over latents, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileGrid {
    rows: Axis,
    columns: Axis,
}

impl TileGrid {
    /// Tiles of `tile` (height and width) over `height` times `width` latents; a tile is not larger than the picture. Neighbours share at
    /// least `overlap` latents (of height and width), at most a third of a tile.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a picture or tiles without size.
    pub fn new(height: usize, width: usize, tile: [usize; 2], overlap: [usize; 2]) -> Result<Self> {
        if [height, width].contains(&0) {
            return Err(Error::invalid("size", "must not be zero".to_owned()));
        }
        if tile.contains(&0) {
            return Err(Error::invalid("tile", "must not be zero".to_owned()));
        }
        Ok(Self {
            rows: Axis::new(height, tile[0], overlap[0]),
            columns: Axis::new(width, tile[1], overlap[1]),
        })
    }

    /// One tile: the whole picture.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn whole(height: usize, width: usize) -> Result<Self> {
        Self::new(height, width, [height, width], [0, 0])
    }

    /// Number of tiles.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.starts.len() * self.columns.starts.len()
    }

    /// Never: there is at least one tile.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Height and width of every tile, in latents.
    #[must_use]
    pub const fn tile(&self) -> [usize; 2] {
        [self.rows.tile, self.columns.tile]
    }

    /// Height and width of the picture, in latents.
    #[must_use]
    pub const fn size(&self) -> [usize; 2] {
        [self.rows.size, self.columns.size]
    }

    /// The first row and column of a tile, in latents.
    #[must_use]
    pub fn start(&self, tile: usize) -> [usize; 2] {
        let across = self.columns.starts.len();
        [
            self.rows.starts[tile / across],
            self.columns.starts[tile % across],
        ]
    }

    /// The latents of a tile, from those of the picture, both `[height, width, channels]`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] when there is no such tile or there are not as many latents.
    pub fn cut(&self, tile: usize, latents: &[f32], channels: usize) -> Result<Vec<f32>> {
        let [height, width] = self.size();
        self.check(tile, "latents", latents.len(), height * width * channels)?;
        let [top, left] = self.start(tile);
        let [rows, columns] = self.tile();
        let at = |row: usize, column: usize| (row * width + column) * channels;
        let lines = (top..top + rows).map(|row| &latents[at(row, left)..at(row, left + columns)]);
        Ok(lines.flatten().copied().collect())
    }

    fn check(&self, tile: usize, name: &str, got: usize, wanted: usize) -> Result<()> {
        if tile >= self.len() {
            let rule = format!("must be less than {}, and is {tile}", self.len());
            return Err(Error::invalid("tile", rule));
        }
        if got != wanted {
            let rule = format!("must have {wanted} values, and has {got}");
            return Err(Error::invalid(name, rule));
        }
        Ok(())
    }
}

/// Puts decoded tiles together. Keeps the rows of one row of tiles, and of the one before it what is still to be blended.
#[derive(Debug, Clone)]
pub struct Blend {
    grid: TileGrid,
    scale: usize,
    channels: usize,
    next: usize,
    /// The current row of tiles, blended along the rows: `[tile height, picture width, channels]`.
    band: Vec<f32>,
    /// The last rows of the row of tiles before, from the seam with the current one on.
    above: Vec<f32>,
}

impl Blend {
    /// Starts a picture of tiles that are decoded to `scale` pixels a latent, `channels` values each.
    #[must_use]
    pub const fn new(grid: TileGrid, scale: usize, channels: usize) -> Self {
        Self {
            grid,
            scale,
            channels,
            next: 0,
            band: Vec::new(),
            above: Vec::new(),
        }
    }

    /// Takes a decoded tile, `[height, width, channels]`; tiles come in the grid's order. Gives the rows of the picture that are finished
    /// with it, `[rows, width, channels]`: none but for the last tile of a row. All calls together give the whole picture.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another tile than the next, or another number of values.
    pub fn add(&mut self, tile: usize, values: Vec<f32>) -> Result<Vec<f32>> {
        let [rows, columns] = self.grid.tile().map(|side| side * self.scale);
        self.grid
            .check(tile, "sample", values.len(), rows * columns * self.channels)?;
        if tile != self.next {
            let rule = format!("must be {}, the next one, and is {tile}", self.next);
            return Err(Error::invalid("tile", rule));
        }
        self.next += 1;
        if self.grid.len() == 1 {
            return Ok(values);
        }
        let across = self.grid.columns.starts.len();
        self.add_to_band(tile % across, &values, columns);
        if self.next.is_multiple_of(across) {
            Ok(self.finish_band(tile / across))
        } else {
            Ok(Vec::new())
        }
    }

    /// Values of a row of the picture.
    fn row_values(&self) -> usize {
        self.grid.columns.size * self.scale * self.channels
    }

    fn add_to_band(&mut self, column: usize, values: &[f32], columns: usize) {
        let row_values = self.row_values();
        let axis = &self.grid.columns;
        let left = axis.starts[column] * self.scale;
        let seam = axis.seam(column, self.scale);
        let weights: Vec<f32> = weights(&seam).collect();
        let rows = values.len() / (columns * self.channels);
        self.band.resize(rows * row_values, 0.0);
        let lines = self.band.chunks_exact_mut(row_values);
        for (line, values) in lines.zip(values.chunks_exact(columns * self.channels)) {
            let line = &mut line[left * self.channels..];
            let from = seam.start.saturating_sub(left) * self.channels;
            for (i, (to, &value)) in line.iter_mut().zip(values).enumerate().skip(from) {
                *to = match weights.get((i - from) / self.channels) {
                    Some(weight) => mix(*to, value, *weight),
                    None => value,
                };
            }
        }
    }

    /// Blends the band with the rows above it, gives what is finished, and keeps what the next band is blended with.
    fn finish_band(&mut self, row: usize) -> Vec<f32> {
        let row_values = self.row_values();
        let axis = &self.grid.rows;
        let top = axis.starts[row] * self.scale;
        let seam = axis.seam(row, self.scale);
        let first = seam.start.max(top);
        let mut finished = self.band.split_off((first - top) * row_values);
        let lines = finished.chunks_exact_mut(row_values);
        let above = self.above.chunks_exact(row_values);
        for ((line, above), weight) in lines.zip(above).zip(weights(&seam)) {
            for (to, &value) in line.iter_mut().zip(above) {
                *to = mix(value, *to, weight);
            }
        }
        self.band.clear();
        self.above = if row + 1 < axis.starts.len() {
            let next = axis.seam(row + 1, self.scale).start;
            finished.split_off((next - first) * row_values)
        } else {
            Vec::new()
        };
        finished
    }
}

/// The weights of the second of two neighbours over a seam, taken at the middles of the pixels.
#[allow(clippy::cast_precision_loss)]
fn weights(seam: &Range<usize>) -> impl Iterator<Item = f32> {
    let width = seam.len() as f32;
    (0..seam.len()).map(move |i| (i as f32 + 0.5) / width)
}

/// Equal values stay as they are, to the bit.
fn mix(a: f32, b: f32, weight: f32) -> f32 {
    a + (b - a) * weight
}
