//! Tiles of every size, and their blend with decoders that are a formula: what goes wrong shows as a number.

use latent_canvas::models::vae_tiling::{Blend, TileGrid};

const SCALE: usize = 8;

/// Each latent as `SCALE` by `SCALE` pixels.
fn enlarged(latents: &[f32], width: usize) -> Vec<f32> {
    let rows = latents.chunks_exact(width).flat_map(|row| {
        let line: Vec<f32> = row.iter().flat_map(|&x| [x; SCALE]).collect();
        std::iter::repeat_n(line, SCALE)
    });
    rows.flatten().collect()
}

/// The picture of a grid whose tiles `decode` gives, in rows as they are finished.
fn blended(grid: &TileGrid, mut decode: impl FnMut(usize) -> Vec<f32>) -> Vec<f32> {
    let mut blend = Blend::new(grid.clone(), SCALE, 1);
    let mut picture = Vec::new();
    for tile in 0..grid.len() {
        picture.extend(blend.add(tile, decode(tile)).unwrap());
    }
    let [height, width] = grid.size();
    assert_eq!(picture.len(), height * width * SCALE * SCALE);
    picture
}

fn grids() -> Vec<TileGrid> {
    let mut list = Vec::new();
    for [height, width] in [
        [64, 64],
        [64, 96],
        [17, 33],
        [5, 40],
        [3, 2],
        [1, 1],
        [128, 9],
        [31, 31],
    ] {
        for tile in [1, 2, 3, 5, 8, 16, 28, 64] {
            for overlap in [0, 1, tile / 4, tile / 3, tile] {
                list.push(TileGrid::new(height, width, [tile; 2], [overlap; 2]).unwrap());
            }
        }
    }
    list
}

#[test]
fn tiles_cover_the_picture_and_share_what_was_asked_for() {
    for grid in grids() {
        let ([height, width], [rows, columns]) = (grid.size(), grid.tile());
        let mut covered = vec![false; height * width];
        for tile in 0..grid.len() {
            let [top, left] = grid.start(tile);
            assert!(top + rows <= height && left + columns <= width, "{grid:?}");
            for y in top..top + rows {
                covered[y * width + left..][..columns].fill(true);
            }
        }
        assert!(covered.into_iter().all(|covered| covered), "{grid:?}");
        assert_eq!(grid.start(0), [0, 0]);
        let last = grid.start(grid.len() - 1);
        assert_eq!([last[0] + rows, last[1] + columns], [height, width]);
    }
    // a quarter of a tile is shared, no tile is superfluous
    let grid = TileGrid::new(64, 64, [28, 28], [7, 7]).unwrap();
    let starts: Vec<_> = (0..grid.len()).map(|tile| grid.start(tile)).collect();
    assert_eq!(starts[..3], [[0, 0], [0, 18], [0, 36]]);
    assert_eq!(grid.len(), 9);
    assert!(TileGrid::new(0, 8, [4; 2], [1; 2]).is_err());
    assert!(TileGrid::new(8, 8, [0, 4], [1; 2]).is_err());
}

#[test]
fn a_constant_stays_constant_to_the_last_bit() {
    for value in [0.1, -0.7, 1.0, 3.0e-7] {
        for grid in grids() {
            let [rows, columns] = grid.tile();
            let picture = blended(&grid, |_| vec![value; rows * columns * SCALE * SCALE]);
            assert!(picture.iter().all(|&x| x == value), "{grid:?}");
        }
    }
}

/// Pixels that all tiles agree about are those, be they a ramp or noise: within a rounding error, and where one tile is alone to the bit.
#[test]
fn tiles_that_agree_give_the_picture() {
    for grid in grids() {
        let [height, width] = grid.size();
        let columns = grid.tile()[1];
        for pattern in [
            |y: usize, x: usize| x as f32 / 64.0 - y as f32 / 200.0,
            |y: usize, x: usize| ((y * 7919 + x * 104_729) % 1009) as f32 / 1009.0,
        ] {
            let places = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
            let latents: Vec<f32> = places.map(|(y, x)| pattern(y, x)).collect();
            let whole = enlarged(&latents, width);
            let picture = blended(&grid, |tile| {
                enlarged(&grid.cut(tile, &latents, 1).unwrap(), columns)
            });
            for (x, y) in picture.iter().zip(&whole) {
                assert!((x - y).abs() <= 1e-6, "{grid:?}");
            }
        }
    }
}

/// A ramp over pixels, as a decoder with its own idea of each tile's place would give it: within 1/255 everywhere.
#[test]
fn ramps_stay_ramps() {
    let grid = TileGrid::new(64, 64, [20, 20], [5, 5]).unwrap();
    let [rows, columns] = grid.tile().map(|side| side * SCALE);
    let side = 64 * SCALE;
    let ramp = |y: usize, x: usize| (x + y) as f32 / (2 * side) as f32 * 2.0 - 1.0;
    let picture = blended(&grid, |tile| {
        let [top, left] = grid.start(tile).map(|at| at * SCALE);
        let places = (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x)));
        places.map(|(y, x)| ramp(top + y, left + x)).collect()
    });
    for (at, x) in picture.iter().enumerate() {
        assert!((x - ramp(at / side, at % side)).abs() < 1.0 / 255.0);
    }
}

/// One tile after another is 1 and all others 0: what each weighs at a pixel. The weights are not negative and sum to 1, also where four
/// tiles meet, and from pixel to pixel they change by no more than a step of the narrower seam.
#[test]
fn weights_sum_to_one_at_every_pixel() {
    for grid in grids()
        .into_iter()
        .filter(|grid| (2..80).contains(&grid.len()))
    {
        let [rows, columns] = grid.tile();
        let [height, width] = grid.size().map(|side| side * SCALE);
        let mut sum = vec![0.0_f32; height * width];
        let mut met = vec![0_u8; height * width];
        for one in 0..grid.len() {
            let weights = blended(&grid, |tile| {
                let value = if tile == one { 1.0 } else { 0.0 };
                vec![value; rows * columns * SCALE * SCALE]
            });
            for (at, weight) in weights.into_iter().enumerate() {
                assert!((0.0..=1.0).contains(&weight));
                sum[at] += weight;
                met[at] += u8::from(weight > 0.0);
            }
        }
        assert!(sum.iter().all(|sum| (sum - 1.0).abs() < 1e-6), "{grid:?}");
        assert!(
            met.iter().all(|&tiles| (1..=4).contains(&tiles)),
            "{grid:?}"
        );
    }
    // in a corner of the usual grid really four meet, and there is no step: neighbouring pixels differ by less than two steps of a ramp
    let grid = TileGrid::new(64, 64, [28, 28], [7, 7]).unwrap();
    let side = 64 * SCALE;
    let picture = blended(&grid, |tile| vec![tile as f32; 28 * 28 * SCALE * SCALE]);
    let step = (3.0 + 1.0) / (7 * SCALE) as f32;
    for y in 0..side - 1 {
        for x in 0..side - 1 {
            let at = y * side + x;
            assert!((picture[at + 1] - picture[at]).abs() <= step);
            assert!((picture[at + side] - picture[at]).abs() <= step);
        }
    }
}

/// One tile is the picture, its values untouched.
#[test]
fn a_single_tile_goes_through() {
    let grid = TileGrid::whole(3, 4).unwrap();
    let latents: Vec<f32> = (0..24).map(|x| x as f32).collect();
    assert_eq!(grid.cut(0, &latents, 2).unwrap(), latents);
    let values: Vec<f32> = (0..3 * 4 * SCALE * SCALE).map(|x| x as f32 + 0.1).collect();
    assert_eq!(blended(&grid, |_| values.clone()), values);
}

#[test]
fn what_does_not_belong_is_refused() {
    let grid = TileGrid::new(8, 8, [4, 4], [1, 1]).unwrap();
    let code = |result: latent_canvas::Result<Vec<f32>>| result.unwrap_err().code().to_owned();
    assert_eq!(code(grid.cut(0, &[0.0; 63], 1)), "invalid-argument");
    assert_eq!(
        code(grid.cut(grid.len(), &[0.0; 64], 1)),
        "invalid-argument"
    );
    let mut blend = Blend::new(grid, SCALE, 3);
    let tile = vec![0.0; 4 * 4 * SCALE * SCALE * 3];
    assert_eq!(code(blend.add(1, tile.clone())), "invalid-argument");
    assert_eq!(code(blend.add(0, vec![0.0; 5])), "invalid-argument");
    assert!(blend.add(0, tile.clone()).is_ok());
    assert_eq!(code(blend.add(0, tile)), "invalid-argument");
}
