use crate::Random;

#[path = "../../examples/blocks.rs"]
#[expect(dead_code, reason = "a test calls what its main calls")]
mod blocks;

#[test]
fn blocks_that_do_not_become_smaller_are_counted_as_they_are() {
    let mut content = vec![b'a'; 128 << 10];
    let mut random = Random(1);
    content.extend(std::iter::repeat_with(|| random.below(256) as u8).take(1000));
    let mut packed = vec![0; content.len()];
    let first = lzo::compress(
        &mut packed,
        &content[..128 << 10],
        &mut lzo::Workspace::new(),
    );
    let expected = first.expect("it becomes smaller") + 1000;
    let mut out = Vec::new();
    blocks::print_blocks(&content, &mut out).expect("a line");
    let line = format!("1 of 2 blocks become smaller: 132072 bytes in {expected}\n");
    assert_eq!(String::from_utf8_lossy(&out), line);
}
