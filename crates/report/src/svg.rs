//! SVG drawings: a document with its style sheet, and the few shapes that reports need.

use std::fmt::Write as _;

/// The colours of a drawing, for light and dark displays.
///
/// Classes: `page` the background, `ink` text, `dim` text of less importance, `line` axes and
/// borders, `grid` the lines behind a plot, `s0` to `s7` series, `r0` to `r9` a scale from good to
/// bad. `s` and `r` set the fill; with `stroke` beside them, they set the line instead. `on0` to
/// `on9` are texts that stand on `r0` to `r9`.
pub const STYLE: &str = "\
.page{fill:#ffffff}.ink{fill:#1b1f24}.dim{fill:#656d76}.line{stroke:#8c959f;fill:none}.grid{stroke:#e4e7eb;fill:none}\
.edge{stroke:#ffffff}\
.s0{fill:#0b62c4}.s1{fill:#c2410c}.s2{fill:#15803d}.s3{fill:#9333ea}.s4{fill:#b45309}.s5{fill:#0e7490}.s6{fill:#be185d}.s7{fill:#57606a}\
.stroke.s0{stroke:#0b62c4;fill:none}.stroke.s1{stroke:#c2410c;fill:none}.stroke.s2{stroke:#15803d;fill:none}.stroke.s3{stroke:#9333ea;fill:none}\
.stroke.s4{stroke:#b45309;fill:none}.stroke.s5{stroke:#0e7490;fill:none}.stroke.s6{stroke:#be185d;fill:none}.stroke.s7{stroke:#57606a;fill:none}\
.r0{fill:#0c4a6e}.r1{fill:#075985}.r2{fill:#0e7490}.r3{fill:#2b8c9e}.r4{fill:#63a8a5}.r5{fill:#a3c4a8}.r6{fill:#e2d9a2}.r7{fill:#eebd6d}.r8{fill:#e59248}.r9{fill:#d0622f}\
.on0,.on1,.on2,.on3{fill:#ffffff}.on4,.on5,.on6,.on7,.on8,.on9{fill:#1b1f24}\
text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px}\
.small{font-size:11px}.title{font-size:16px;font-weight:600}.bold{font-weight:600}.middle{text-anchor:middle}.end{text-anchor:end}\
.faint{opacity:.35}\
@media(prefers-color-scheme:dark){\
.page{fill:#0d1117}.ink{fill:#e6edf3}.dim{fill:#8d96a0}.line{stroke:#6e7681}.grid{stroke:#21262d}\
.edge{stroke:#0d1117}\
.s0{fill:#58a6ff}.s1{fill:#f0883e}.s2{fill:#3fb950}.s3{fill:#bc8cff}.s4{fill:#e3b341}.s5{fill:#39c5cf}.s6{fill:#f778ba}.s7{fill:#8d96a0}\
.stroke.s0{stroke:#58a6ff}.stroke.s1{stroke:#f0883e}.stroke.s2{stroke:#3fb950}.stroke.s3{stroke:#bc8cff}\
.stroke.s4{stroke:#e3b341}.stroke.s5{stroke:#39c5cf}.stroke.s6{stroke:#f778ba}.stroke.s7{stroke:#8d96a0}\
}";

/// A drawing under construction. Units are pixels, from the upper left corner.
#[derive(Debug)]
pub struct Svg {
    width: u32,
    height: u32,
    title: String,
    body: String,
}

impl Svg {
    /// An empty drawing with a background. The title is shown to readers that do not see the
    /// drawing.
    pub fn new(width: u32, height: u32, title: &str) -> Svg {
        let mut svg = Svg {
            width,
            height,
            title: escape(title),
            body: String::new(),
        };
        svg.rect(0.0, 0.0, width.into(), height.into(), "page", None);
        svg
    }

    /// A rectangle, with a text that is shown when the pointer rests on it.
    pub fn rect(
        &mut self,
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        class: &str,
        tip: Option<&str>,
    ) {
        let (x, y) = (number(x), number(y));
        let (width, height) = (number(width), number(height));
        let shape = format!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\""
        );
        self.close(&shape, "rect", tip);
    }

    /// A filled circle, with a text that is shown when the pointer rests on it.
    pub fn circle(&mut self, x: f64, y: f64, radius: f64, class: &str, tip: Option<&str>) {
        let (x, y, radius) = (number(x), number(y), number(radius));
        let shape = format!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"");
        self.close(&shape, "circle", tip);
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        self.path(&[from, to], class);
    }

    /// Straight lines through points; none if there are fewer than two.
    pub fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let [(x, y), rest @ ..] = points else { return };
        if rest.is_empty() {
            return;
        }
        let mut steps = format!("M{} {}", number(*x), number(*y));
        for (x, y) in rest {
            // Writing to a string cannot fail.
            let _ = write!(steps, "L{} {}", number(*x), number(*y));
        }
        let _ = writeln!(self.body, "<path class=\"{class}\" d=\"{steps}\"/>");
    }

    /// A line of text whose baseline begins here, or ends or is centred here with the classes `end`
    /// and `middle`.
    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y, text) = (number(x), number(y), escape(text));
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"
        );
    }

    /// A line of text that reads upwards, centred on a point: the name of a vertical axis.
    pub fn upright(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let (x, y, text) = (number(x), number(y), escape(text));
        let _ = writeln!(
            self.body,
            "<text class=\"{class} middle\" transform=\"translate({x} {y})rotate(-90)\">{text}</text>"
        );
    }

    /// The document as a file of its own.
    pub fn document(&self) -> String {
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}",
            self.element()
        )
    }

    /// The drawing as an element of an HTML page.
    pub fn element(&self) -> String {
        let Svg {
            width,
            height,
            title,
            body,
        } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n{body}</svg>\n"
        )
    }

    /// Ends a shape, with its tip.
    fn close(&mut self, shape: &str, name: &str, tip: Option<&str>) {
        let _ = match tip {
            None => writeln!(self.body, "{shape}/>"),
            Some(tip) => writeln!(self.body, "{shape}><title>{}</title></{name}>", escape(tip)),
        };
    }
}

/// A text in which no letter ends the text or begins markup. Control characters, which XML does not
/// allow, become `\u{fffd}`.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            letter if letter.is_control() => escaped.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A coordinate with at most two decimals: more are not seen, and the shortest form is the same
/// everywhere.
pub fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

/// The width of a text in pixels at a font size, about: the fonts of readers differ.
pub fn width_of(text: &str, font_px: f64) -> f64 {
    let ems: f64 = text
        .chars()
        .map(|letter| match letter {
            'i' | 'j' | 'l' | 't' | 'f' | 'I' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 0.34,
            'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.9,
            'A'..='Z' => 0.68,
            ' '..='~' => 0.58,
            _ => 1.0,
        })
        .sum();
    ems * font_px
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_element() {
        assert_eq!(
            escape("</text><script>\"&\x1b\u{ffff}"),
            "&lt;/text&gt;&lt;script&gt;&quot;&amp;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (-0.001, "0"),
            (1.5, "1.5"),
            (100.0, "100"),
            (2.345_6, "2.35"),
            (-7.1, "-7.1"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_drawing_states_its_size_title_and_shapes() {
        let mut svg = Svg::new(20, 10, "a & b");
        svg.circle(1.0, 2.0, 3.0, "s0", Some("1 < 2"));
        svg.path(&[(0.0, 0.0)], "line");
        svg.line((0.0, 0.0), (1.0, 1.25), "line");
        let document = svg.document();
        for part in [
            "viewBox=\"0 0 20 10\"",
            "<title>a &amp; b</title>",
            "<circle class=\"s0\" cx=\"1\" cy=\"2\" r=\"3\"><title>1 &lt; 2</title></circle>\n",
            "<path class=\"line\" d=\"M0 0L1 1.25\"/>\n</svg>",
        ] {
            assert!(document.contains(part), "{part} is not in {document}");
        }
        assert_eq!(document.matches("<path").count(), 1);
    }
}
