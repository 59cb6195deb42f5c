//! The prediction as JSON: sizes in bytes, times in seconds, rates in bytes a second.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use plan::{Container, Goal, Range, Reason, Row};

use super::Report;

/// The report as one object and a line feed.
pub(super) fn of(report: &Report<'_>) -> String {
    let mut json = String::from("{\"schema\":\"restow.plan/1\",");
    match str::from_utf8(report.src.as_os_str().as_bytes()) {
        Ok(src) => json += &format!("\"source\":{},", string(src)),
        Err(_) => {
            let src = tree::base64::encode(report.src.as_os_str().as_bytes());
            json += &format!("\"source_base64\":{},", string(&src));
        }
    }
    let prediction = &report.prediction;
    // Writing to a string cannot fail.
    let _ = write!(
        json,
        "\"for\":\"{}\",\"files\":{},\"content_bytes\":{},\"duplicate_bytes\":{},\
         \"machine\":{{\"threads\":{},\"write_bytes_per_second\":{}}},\"seed\":{},\"seconds\":{},\"limits\":{},",
        report.container.name(),
        report.files,
        prediction.content_bytes,
        prediction.duplicate_bytes,
        report.threads,
        number(report.medium.rate),
        report.args.seed,
        number(report.seconds),
        limits(report)
    );
    let rows = report.order.iter().map(|&index| row(report, index));
    let rows: Vec<String> = rows.collect();
    let _ = write!(json, "\"rows\":[{}],\"pick\":", rows.join(","));
    json += &match &report.advice {
        None => "null".to_owned(),
        Some(advice) => {
            let at = report.order.iter().position(|&it| it == advice.choice.row);
            format!(
                "{{\"row\":{},\"codec\":{},\"goal\":\"{}\",\"keeps_limits\":{},\"why\":{},\"command\":{}}}",
                at.unwrap_or(0),
                string(&report.words(&report.rows()[advice.choice.row])),
                goal(advice.choice.goal),
                advice.choice.reason == Reason::Best,
                string(&advice.reason),
                string(&advice.command)
            )
        }
    };
    json + "}\n"
}

fn goal(goal: Goal) -> &'static str {
    match goal {
        Goal::Size => "size",
        Goal::Time => "time",
        Goal::Transfer => "transfer",
        Goal::Balance => "balance",
    }
}

fn limits(report: &Report<'_>) -> String {
    let limits = &report.limits;
    let named = [
        ("seconds_max", limits.seconds_max),
        ("bytes_max", limits.bytes_max),
        ("read_bytes_per_second", limits.read_rate),
        ("memory_bytes_max", limits.memory_max.map(|it| it as f64)),
        ("link_bytes_per_second", limits.link_rate),
    ];
    let fields = named.iter().filter_map(|(name, value)| {
        let value = (*value)?;
        Some(format!("\"{name}\":{}", number(value)))
    });
    format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
}

fn row(report: &Report<'_>, index: usize) -> String {
    let row: &Row = &report.rows()[index];
    let sampled = row.sampled;
    let mut json = format!("{{\"codec\":{}", string(&report.words(row)));
    if let (Some(bytes), Container::Squashfs) = (row.candidate.block_bytes, report.container) {
        let _ = write!(json, ",\"block_bytes\":{bytes}");
    }
    let _ = write!(
        json,
        ",\"bytes\":{},\"bytes_error\":{},\"seconds\":{},\"seconds_error\":{},\"encode_cpu_seconds\":{},\
         \"decode_cpu_seconds\":{},\"decode_bytes_per_second\":{},\"memory_bytes\":{}",
        number(row.bytes.value.round()),
        error(row.bytes),
        number(row.seconds.value),
        error(row.seconds),
        number(row.encode_seconds),
        number(row.decode_seconds),
        row.decode_rate()
            .map_or("null".to_owned(), |it| number(it.round())),
        row.memory_bytes
    );
    let content = report.prediction.content_bytes as f64;
    let _ = write!(
        json,
        ",\"ratio\":{},\"is_front\":{}",
        number(content / row.bytes.value.max(1.0)),
        report.front.contains(&index)
    );
    if let Some((saved, times)) = report.step(index) {
        let (saved, times) = (number(saved), number(times));
        let _ = write!(
            json,
            ",\"step\":{{\"bytes_saved\":{saved},\"time_factor\":{times}}}"
        );
    }
    if let Some(seconds) = report.transfer(row) {
        let _ = write!(json, ",\"transfer_seconds\":{}", number(seconds));
    }
    let _ = write!(
        json,
        ",\"sampled\":{{\"parts\":{},\"first_parts\":{},\"first_bytes\":{},\"tried_parts\":{},\"tried_bytes\":{}}}}}",
        sampled.parts,
        sampled.first_parts,
        sampled.first_bytes,
        sampled.tried_parts,
        sampled.tried_bytes
    );
    json
}

fn error(range: Range) -> String {
    number(range.error)
}

/// A number as JSON has it: no infinity.
fn number(value: f64) -> String {
    if value.is_finite() {
        format!("{value}")
    } else {
        "null".to_owned()
    }
}

/// A text in quotation marks.
fn string(text: &str) -> String {
    let mut json = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => json.extend(['\\', letter]),
            _ if letter.is_control() => {
                let _ = write!(json, "\\u{:04x}", u32::from(letter));
            }
            _ => json.push(letter),
        }
    }
    json + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_numbers_are_those_of_json() {
        assert_eq!(string("a\"\\\n\u{7f}é"), "\"a\\\"\\\\\\u000a\\u007fé\"");
        assert_eq!(number(f64::INFINITY), "null");
        assert_eq!(number(1.5e12), "1500000000000");
    }
}
