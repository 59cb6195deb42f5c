//! HTML pages of one file, which need no network and follow the light or dark setting of the
//! display.

use crate::svg::escape;

/// The style of a page: tables with numbers to the right, and drawings that shrink with the window.
const STYLE: &str = "\
:root{color-scheme:light dark;--page:#fff;--ink:#1b1f24;--dim:#656d76;--line:#d0d7de;--mark:#ddf4ff}\
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--ink:#e6edf3;--dim:#8d96a0;--line:#30363d;--mark:#12304f}}\
body{margin:2rem auto;max-width:76rem;padding:0 1rem;background:var(--page);color:var(--ink);\
font:15px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}p.dim,.dim{color:var(--dim)}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.2rem .7rem;border-bottom:1px solid var(--line);text-align:right}\
th:first-child,td:first-child{text-align:left;overflow-wrap:anywhere}th{font-weight:600}tr.mark td{background:var(--mark)}tr.dim td{color:var(--dim)}\
th.sorts{cursor:pointer}th.sorts:hover{text-decoration:underline}\
svg{max-width:100%;height:auto}code,pre{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:.92em}";

/// Sorts a table by the column whose head is clicked: by `data-v` of the cells if they have it,
/// otherwise by their text.
const SCRIPT: &str = "\
for(const t of document.querySelectorAll('table.sortable'))t.tHead.rows[0].querySelectorAll('th').forEach((h,i)=>{\
h.className='sorts';let up=false;h.onclick=()=>{up=!up;const b=t.tBodies[0],v=r=>{const c=r.cells[i],d=c.dataset.v;\
return d===undefined?c.textContent:+d};[...b.rows].sort((x,y)=>{const p=v(x),q=v(y);return(p<q?-1:p>q?1:0)*(up?1:-1)})\
.forEach(r=>b.append(r))}});";

/// A page with a title and a body, which is markup.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// A cell of a table.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The text of the cell.
    pub text: String,
    /// The sort key of the column; `None` sorts by the text.
    pub value: Option<f64>,
}

/// A row of a table: its cells, and a class such as `mark` or `dim`.
#[derive(Clone, Debug, Default)]
pub struct TableRow {
    /// The cells, one for each head.
    pub cells: Vec<Cell>,
    /// A class of the style sheet, or nothing.
    pub class: &'static str,
}

/// A table whose columns are sorted by a click on their heads.
pub fn table(heads: &[&str], rows: &[TableRow]) -> String {
    let mut table = String::from("<table class=\"sortable\">\n<thead><tr>");
    for head in heads {
        table += &format!("<th>{}</th>", escape(head));
    }
    table += "</tr></thead>\n<tbody>\n";
    for TableRow { cells, class } in rows {
        table += &match *class {
            "" => "<tr>".to_owned(),
            class => format!("<tr class=\"{class}\">"),
        };
        for Cell { text, value } in cells {
            let text = escape(text);
            table += &match value {
                Some(value) => format!("<td data-v=\"{value}\">{text}</td>"),
                None => format!("<td>{text}</td>"),
            };
        }
        table += "</tr>\n";
    }
    table + "</tbody>\n</table>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_load_nothing_and_escape_what_they_show() {
        let cell = |text: &str, value| Cell {
            text: text.to_owned(),
            value,
        };
        let rows = [TableRow {
            cells: vec![cell("<b>", None), cell("1.5 KiB", Some(1536.0))],
            class: "mark",
        }];
        let page = page("x < y", &table(&["Name", "Size"], &rows));
        assert!(page.contains("<title>x &lt; y</title>"));
        assert!(page.contains(
            "<tr class=\"mark\"><td>&lt;b&gt;</td><td data-v=\"1536\">1.5 KiB</td></tr>"
        ));
        for outside in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
