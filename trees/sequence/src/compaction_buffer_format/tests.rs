use super::*;

#[test]
fn bases_and_barriers_round_trip_and_the_older_format_has_no_bases() {
    let section = |low: &[u8], high: Option<&[u8]>, is_base| BufferSection {
        low: low.into(),
        high: high.map(Fence::from),
        run: None,
        is_base,
        from_memory: None,
    };
    let encoded = |is_base| {
        let layers = vec![vec![section(b"b", Some(b"d"), false)], vec![section(b"", None, is_base)]];
        encode_buffer(&CompactionBuffer { id: ObjectId(4), layers })
    };
    for is_base in [false, true] {
        let bytes = encoded(is_base);
        assert_eq!(bytes[0], if is_base { FORMAT_WITH_BASES } else { FORMAT });
        let layers = decode_buffer(&bytes).unwrap().layers;
        let sections: Vec<_> =
            layers.iter().flatten().map(|section| (section.low.to_vec(), section.is_base)).collect();
        assert_eq!(sections, [(b"b".to_vec(), false), (Vec::new(), is_base)]);
        assert_eq!((layers[0][0].high.clone(), layers[1][0].high.clone()), (Some(b"d"[..].into()), None));
    }
    let mut older = encoded(true);
    older[0] = FORMAT;
    assert!(decode_buffer(&older).is_err(), "the older format has no bases");
}

#[test]
fn hashes_of_keys_from_memory_round_trip_and_damage_is_refused() {
    let hashes = |of: &[u32]| {
        let barrier = BufferSection::barrier(b"b"[..].into(), Some(b"d"[..].into()));
        let from_memory = BufferSection { from_memory: Some(of.into()), ..barrier };
        encode_buffer(&CompactionBuffer { id: ObjectId(4), layers: vec![vec![from_memory]] })
    };
    let whole = hashes(&[3, 9]);
    assert_eq!(whole[0], FORMAT_WITH_HASHES);
    let section = decode_buffer(&whole).unwrap().layers.remove(0).remove(0);
    assert_eq!(section.from_memory.as_deref(), Some(&[3, 9][..]));
    assert!((0..whole.len()).all(|length| decode_buffer(&whole[..length]).is_err()), "a truncated buffer");
    assert!(decode_buffer(&hashes(&[9, 3])).is_err(), "descending hashes");
    let older = [&[FORMAT_WITH_BASES], &whole[1..]].concat();
    assert!(decode_buffer(&older).is_err(), "the older format has no hashes");
}
