//! PNG of an RGB picture with one text (W3C PNG specification, third edition): the container and the filters, around deflate and checksum of
//! others. A whole encoder and its decoder would be a tenth of the module that a page downloads.

use miniz_oxide::deflate::compress_to_vec_zlib;

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// Bytes of a pixel.
const PIXEL: usize = 3;
/// Of deflate, 0 to 10: as small as the usual encoders make it.
const LEVEL: u8 = 6;

/// The file. `rgb` has `3 * width` bytes a row; the text must not contain a NUL.
pub(super) fn encode(width: u32, rgb: &[u8], keyword: &str, text: &str) -> Vec<u8> {
    let row_bytes = (width as usize * PIXEL).max(1);
    let height = (rgb.len() / row_bytes) as u32;
    let mut header = Vec::new();
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // 8 bits, RGB, deflate, adaptive filters, not interlaced
    header.extend([8, 2, 0, 0, 0]);
    let mut file = SIGNATURE.to_vec();
    chunk(&mut file, *b"IHDR", &header);
    // a tEXt chunk is Latin-1; anything beyond ASCII goes into iTXt, which is UTF-8
    let mut body = keyword.as_bytes().to_vec();
    if text.is_ascii() {
        body.push(0);
        body.extend(text.as_bytes());
        chunk(&mut file, *b"tEXt", &body);
    } else {
        // not compressed, no language, no translated keyword
        body.extend([0, 0, 0, 0, 0]);
        body.extend(text.as_bytes());
        chunk(&mut file, *b"iTXt", &body);
    }
    let filtered = filtered(rgb, row_bytes);
    chunk(&mut file, *b"IDAT", &compress_to_vec_zlib(&filtered, LEVEL));
    chunk(&mut file, *b"IEND", &[]);
    file
}

fn chunk(file: &mut Vec<u8>, kind: [u8; 4], body: &[u8]) {
    file.extend((body.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(body);
    let checksum = crc32fast::hash(&file[start..]);
    file.extend(checksum.to_be_bytes());
}

/// Each row with the filter that leaves the smallest sum of absolute differences (the specification's heuristic), which comes before it.
fn filtered(rgb: &[u8], row_bytes: usize) -> Vec<u8> {
    let zeros = vec![0; row_bytes];
    let mut above = zeros.as_slice();
    let mut filtered = Vec::with_capacity(rgb.len() + rgb.len() / row_bytes);
    let mut candidates: [Vec<u8>; 5] = Default::default();
    for row in rgb.chunks_exact(row_bytes) {
        for (filter, candidate) in candidates.iter_mut().enumerate() {
            candidate.clear();
            candidate.extend((0..row_bytes).map(|i| {
                let left = i.checked_sub(PIXEL);
                let a = left.map_or(0, |left| row[left]);
                let c = left.map_or(0, |left| above[left]);
                let b = above[i];
                let predicted = match filter {
                    0 => 0,
                    1 => a,
                    2 => b,
                    3 => a.midpoint(b),
                    _ => paeth(a, b, c),
                };
                row[i].wrapping_sub(predicted)
            }));
        }
        let cost = |candidate: &[u8]| -> u64 {
            let differences = candidate.iter();
            differences
                .map(|&byte| u64::from(byte.cast_signed().unsigned_abs()))
                .sum()
        };
        let best = (0u8..).zip(&candidates);
        if let Some((filter, best)) = best.min_by_key(|(_, candidate)| cost(candidate)) {
            filtered.push(filter);
            filtered.extend(best);
        }
        above = row;
    }
    filtered
}

/// Whichever of left, above and upper left is nearest to left + above - upper left.
fn paeth(a: u8, b: u8, c: u8) -> u8 {
    let estimate = i16::from(a) + i16::from(b) - i16::from(c);
    let [to_a, to_b, to_c] = [a, b, c].map(|value| estimate.abs_diff(i16::from(value)));
    if to_a <= to_b && to_a <= to_c {
        a
    } else if to_b <= to_c {
        b
    } else {
        c
    }
}
