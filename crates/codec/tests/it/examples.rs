#[path = "../../examples/compare.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod compare;

#[test]
fn compare_gives_a_size_for_each_codec() {
    let content: Vec<u8> = (0..20_000u32)
        .flat_map(|n| format!("line {n} of {}\n", n * 7 % 1000).into_bytes())
        .collect();
    let mut out = Vec::new();
    compare::print_sizes(&content, &mut out).expect("lines");
    let text = String::from_utf8_lossy(&out);
    let mut sizes = std::collections::BTreeMap::new();
    for line in text.lines() {
        let (bytes, name) = line.trim_start().split_once(' ').expect("two columns");
        sizes.insert(name, bytes.parse::<usize>().expect("a number"));
    }
    assert_eq!(sizes.len(), 6, "{text}");
    let whole = content.len();
    let in_order = sizes["zstd:15"] <= sizes["zstd:3"] && sizes["zstd:3"] < sizes["lz4"];
    assert!(in_order && sizes["lz4"] < whole, "{text}");
    // Content without a pattern is stored as it is.
    let mut state = 1u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(5000)
    .collect();
    let mut out = Vec::new();
    compare::print_sizes(&noise, &mut out).expect("lines");
    let text = String::from_utf8_lossy(&out);
    assert!(
        text.lines()
            .all(|line| line.trim_start().starts_with("5000 ")),
        "{text}"
    );
}
