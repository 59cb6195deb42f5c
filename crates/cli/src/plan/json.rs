//! The prediction as JSON: sizes in bytes, times in seconds, rates in bytes a second.

use std::os::unix::ffi::OsStrExt;

use restow::plan::{CandidateRow, Container, Goal, Reason};
use tree::json::Object;

use super::report::Report;

/// The report as one object and a line feed.
pub(super) fn of(report: &Report<'_>) -> String {
    let prediction = &report.prediction;
    let machine = Object::new()
        .number("threads", report.threads as u64)
        .decimal("write_bytes_per_second", report.write_rate);
    let json = Object::of_schema("plan", 1)
        .name("source", report.src.as_os_str().as_bytes())
        .text("for", report.container.name())
        .number("files", prediction.files)
        .number("content_bytes", prediction.content_bytes)
        .number("duplicate_bytes", prediction.duplicate_bytes)
        .object("machine", machine)
        .number("seed", report.seed)
        .decimal("seconds", report.seconds)
        .object("limits", limits(report))
        .list("rows", report.order.iter().map(|&index| row(report, index)));
    let json = match pick(report) {
        Some(pick) => json.object("pick", pick),
        None => json.null("pick"),
    };
    json.line() + "\n"
}

/// A recommendation.
fn pick(report: &Report<'_>) -> Option<Object> {
    let advice = report.advice.as_ref()?;
    let choice = &advice.choice;
    let at = report.order.iter().position(|&it| it == choice.row);
    let goal = match choice.goal {
        Goal::Size => "size",
        Goal::Time => "time",
        Goal::Transfer => "transfer",
        Goal::Balance => "balance",
    };
    let object = Object::new()
        .number("row", at.unwrap_or(0) as u64)
        .text("codec", &report.words(&report.rows()[choice.row]))
        .text("goal", goal)
        .flag("keeps_limits", choice.reason == Reason::Best)
        .text("why", &advice.reason)
        .text("command", &advice.command);
    Some(object)
}

/// Those that were given.
fn limits(report: &Report<'_>) -> Object {
    let limits = &report.limits;
    let named = [
        ("seconds_max", limits.seconds_max),
        ("bytes_max", limits.bytes_max),
        ("read_bytes_per_second", limits.read_rate),
        ("memory_bytes_max", limits.memory_max.map(|it| it as f64)),
        ("link_bytes_per_second", limits.link_rate),
    ];
    let given = named
        .iter()
        .filter_map(|&(name, value)| Some((name, value?)));
    given.fold(Object::new(), |object, (name, value)| {
        object.decimal(name, value)
    })
}

fn row(report: &Report<'_>, index: usize) -> Object {
    let row: &CandidateRow = &report.rows()[index];
    let mut object = Object::new().text("codec", &report.words(row));
    if let (Some(bytes), Container::Squashfs | Container::Erofs) =
        (row.candidate.block_bytes, report.container)
    {
        object = object.number("block_bytes", bytes);
    }
    let content = report.prediction.content_bytes as f64;
    object = object
        .decimal("bytes", row.bytes.value.round())
        .decimal("bytes_error", row.bytes.error)
        .decimal("seconds", row.seconds.value)
        .decimal("seconds_error", row.seconds.error)
        .decimal("encode_cpu_seconds", row.encode_seconds)
        .decimal("decode_cpu_seconds", row.decode_seconds)
        .decimal("read_seconds", row.read_seconds);
    object = match row.decode_rate() {
        Some(rate) => object.decimal("decode_bytes_per_second", rate.round()),
        None => object.null("decode_bytes_per_second"),
    };
    object = object
        .number("memory_bytes", row.memory_bytes)
        .decimal("ratio", content / row.bytes.value.max(1.0))
        .flag("is_front", report.front.contains(&index));
    if let Some((saved, times)) = report.step(index) {
        let step = Object::new()
            .decimal("bytes_saved", saved)
            .decimal("time_factor", times);
        object = object.object("step", step);
    }
    if let Some(seconds) = report.transfer(row) {
        object = object.decimal("transfer_seconds", seconds);
    }
    let sampled = row.sampled;
    let sampled = Object::new()
        .number("parts", sampled.parts)
        .number("first_parts", sampled.first_parts)
        .number("first_bytes", sampled.first_bytes)
        .number("tried_parts", sampled.tried_parts)
        .number("tried_bytes", sampled.tried_bytes);
    object.object("sampled", sampled)
}
