//! However a file is cut into chunks, the same tensors come out as by slicing it directly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Keep, NAME, entry, file, stream};
use half::{bf16, f16};
use proptest::prelude::*;
use weights_loader::{Dtype, SafetensorsStream, TensorInfo, decode_f32};

/// A tensor to write: its format, how many groups of elements that fill whole bytes, and how they are laid out.
#[derive(Debug, Clone)]
struct Spec {
    dtype: &'static str,
    groups: usize,
    axes: usize,
}

const SPELLINGS: [(&str, usize, usize); 12] = [
    // spelling, elements per group, bytes per group
    ("F16", 1, 2),
    ("BF16", 1, 2),
    ("F32", 1, 4),
    ("F64", 1, 8),
    ("I64", 1, 8),
    ("C64", 1, 8),
    ("U8", 1, 1),
    ("BOOL", 1, 1),
    ("F8_E4M3", 1, 1),
    ("F4", 2, 1),
    ("F6_E2M3", 4, 3),
    ("NEW", 1, 1),
];

fn specs() -> impl Strategy<Value = Vec<Spec>> {
    let spec = (0..SPELLINGS.len(), 0usize..40, 0usize..4).prop_map(|(i, groups, axes)| Spec {
        dtype: SPELLINGS[i].0,
        groups,
        axes,
    });
    prop::collection::vec(spec, 0..8)
}

/// The file, and for each tensor its name and its bytes. Names run against the order of the bytes.
fn build(specs: &[Spec], seed: u8) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
    let mut entries = vec![r#""__metadata__":{"format":"pt"}"#.to_owned()];
    let (mut data, mut expected) = (Vec::new(), Vec::new());
    for (i, spec) in specs.iter().enumerate() {
        let &(_, elements, bytes) = SPELLINGS.iter().find(|s| s.0 == spec.dtype).unwrap();
        let (elements, size) = (elements * spec.groups, bytes * spec.groups);
        let shape = match spec.axes {
            0 if elements == 1 => "[]".to_owned(),
            2 => format!("[1,{elements}]"),
            3 => format!("[{elements},1,1]"),
            _ => format!("[{elements}]"),
        };
        let (begin, name) = (data.len(), format!("t{}", 99 - i));
        data.extend((0..size).map(|k| ((begin + k) as u8).wrapping_mul(31).wrapping_add(seed)));
        entries.push(entry(
            &name,
            spec.dtype,
            &shape,
            begin as u64,
            data.len() as u64,
        ));
        expected.push((name, data[begin..].to_vec()));
    }
    entries.reverse();
    (file(format!("{{{}}}", entries.join(",")), &data), expected)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn any_split_gives_the_same_tensors(
        specs in specs(),
        seed: u8,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        know_length: bool,
    ) {
        let (file, expected) = build(&specs, seed);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(file.len() + 1)).collect();
        cuts.extend([0, file.len()]);
        cuts.sort_unstable();
        let mut keep = Keep::default();
        let mut stream = SafetensorsStream::new(NAME, know_length.then_some(file.len() as u64));
        // equal cuts make empty chunks, which must do nothing
        for pair in cuts.windows(2) {
            stream.push(&file[pair[0]..pair[1]], &mut keep).unwrap();
        }
        let index = stream.finish().unwrap();
        prop_assert_eq!(index.file_length(), file.len() as u64);
        prop_assert_eq!(index.tensors.len(), expected.len());
        prop_assert_eq!(keep.ended.len(), expected.len());
        for (name, bytes) in &expected {
            let tensor = index.get(name).unwrap();
            let range = tensor.range.start as usize..tensor.range.end as usize;
            prop_assert_eq!(&file[range], &bytes[..]);
            prop_assert_eq!(&keep.tensors[name], bytes);
        }
    }

    #[test]
    fn random_bytes_never_panic(
        length in 0u64..80,
        header in prop::collection::vec(any::<u8>(), 0..120),
        chunk in 1usize..9,
    ) {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(header);
        let answer = stream(&bytes, chunk);
        // nothing random is a header of more than `{}` and spaces
        if let Ok((index, _)) = answer { prop_assert!(index.tensors.is_empty()); }
    }

    #[test]
    fn a_flipped_header_byte_never_panics(specs in specs(), at in any::<prop::sample::Index>(), to: u8) {
        let (mut file, _) = build(&specs, 0);
        let at = at.index(file.len());
        file[at] = to;
        if let Ok((index, kept)) = stream(&file, 7) {
            prop_assert_eq!(index.file_length(), file.len() as u64);
            prop_assert_eq!(kept.ended.len(), index.tensors.len());
        }
    }
}

/// W03: odd numbers of 2-byte values next to each other; neither takes a byte of the other.
#[test]
fn odd_counts_of_f16_keep_to_themselves() {
    for counts in [[1usize, 3, 5], [5, 1, 3], [3, 0, 1]] {
        let specs: Vec<Spec> = counts
            .iter()
            .map(|&groups| Spec {
                dtype: "F16",
                groups,
                axes: 1,
            })
            .collect();
        let (file, expected) = build(&specs, 3);
        for chunk in 1..file.len() {
            let (_, kept) = stream(&file, chunk).unwrap();
            for (name, bytes) in &expected {
                assert_eq!(&kept.tensors[name], bytes, "chunks of {chunk}");
            }
        }
    }
}

/// A whole file in one chunk is delivered without being cut up or copied element by element.
#[test]
fn one_chunk_gives_one_call_per_tensor() {
    let specs = vec![
        Spec {
            dtype: "F16",
            groups: 39,
            axes: 1
        };
        3
    ];
    let (file, _) = build(&specs, 0);
    assert_eq!(stream(&file, file.len()).unwrap().1.calls, 3);
}

#[test]
fn empty_tensors_begin_and_end_between_others() {
    let header = [
        entry("full", "U8", "[2]", 0, 2),
        entry("none", "F32", "[0,4]", 2, 2),
        entry("first", "F16", "[3,0]", 0, 0),
        entry("last", "U8", "[1]", 2, 3),
    ];
    let (index, kept) = stream(&file(format!("{{{}}}", header.join(",")), &[1, 2, 3]), 1).unwrap();
    assert_eq!(kept.ended, ["first", "full", "none", "last"]);
    assert_eq!(index.tensors[0].shape, [3, 0]);
}

fn info(dtype: Dtype) -> TensorInfo {
    TensorInfo {
        name: "x".to_owned(),
        dtype,
        shape: vec![2],
        range: 0..4,
    }
}

/// C03: the bits of BF16, and a value beyond F16's range.
#[test]
fn bf16_bits() {
    let mut out = vec![9.0];
    decode_f32(
        &info(Dtype::BF16),
        &[0x80, 0x3f, 0x00, 0xc0, 0x89, 0x47],
        &mut out,
    )
    .unwrap();
    assert_eq!(out, [9.0, 1.0, -2.0, 70144.0]);
}

#[test]
fn every_f16_and_bf16_value_is_read_as_it_is() {
    for bits in 0..=u16::MAX {
        let mut out = Vec::new();
        decode_f32(&info(Dtype::F16), &bits.to_le_bytes(), &mut out).unwrap();
        decode_f32(&info(Dtype::BF16), &bits.to_le_bytes(), &mut out).unwrap();
        let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
        assert!(
            out[0].is_nan() == half.is_nan()
                && (half.is_nan() || f16::from_f32(out[0]).to_bits() == bits)
        );
        assert!(brain.is_nan() && out[1].is_nan() || out[1].to_bits() == u32::from(bits) << 16);
    }
}

#[test]
fn f32_and_the_refusals() {
    let mut out = Vec::new();
    decode_f32(
        &info(Dtype::F32),
        &[0, 0, 0x80, 0x3f, 0, 0, 0xc0, 0x7f],
        &mut out,
    )
    .unwrap();
    assert!(out[0] == 1.0 && out[1].is_nan());
    assert_eq!(
        decode_f32(&info(Dtype::F32), &[0; 6], &mut out)
            .unwrap_err()
            .code(),
        "header"
    );
    assert_eq!(
        decode_f32(&info(Dtype::I64), &[0; 8], &mut out)
            .unwrap_err()
            .code(),
        "unsupported-dtype"
    );
    assert_eq!(out.len(), 2);
}
