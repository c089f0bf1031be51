//! A contact sheet: one HTML file with each image before and after, the triangle of its primaries and its findings.
//! It asks nothing of any network, runs no script, and shows every text from outside as text.

mod gamut;
mod html;

use std::fmt::Write;

use refmill::finding::{Finding, Severity};
use refmill::report::{Model, Outcome, Report};

use crate::verdict;
use html::{base64, escape};

const STYLE: &str = include_str!("contact_sheet/style.css");

/// One image of the sheet.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its report.
    pub report: Report,
    /// The stored pixels as PNG, where the image could be decoded.
    pub before: Option<Vec<u8>>,
    /// The pixels as they are meant, as PNG.
    pub after: Option<Vec<u8>>,
}

/// The whole file.
#[must_use]
pub fn render(entries: &[Entry]) -> String {
    let body = body(entries);
    // The only style that counts is the one that knows this word, which no image can know: it depends on all of them.
    let nonce = blake3::hash(body.as_bytes()).to_hex();
    let policy =
        format!("default-src 'none'; img-src data:; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>Contact sheet, {} images</title>\n<style nonce=\"{nonce}\">\n{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n",
        entries.len()
    )
}

fn body(entries: &[Entry]) -> String {
    let count = |grade| entries.iter().filter(|entry| Grade::of(&entry.report) == grade).count();
    let mut text = String::from("<a class=\"skip\" href=\"#images\">Skip to the images</a>\n<header>\n");
    let (sound, defect, reject) = (count(Grade::Sound), count(Grade::Defect), count(Grade::Reject));
    // Writing to a String cannot fail, here and below.
    writeln!(
        text,
        "<h1>Contact sheet</h1>\n<p class=\"counts\"><span class=\"badge sound\">{sound} sound</span> \
         <span class=\"badge defect\">{defect} with a defect</span> \
         <span class=\"badge reject\">{reject} rejected</span></p>\n\
         <p class=\"note\"><b>Before</b>: the stored pixels, without orientation and colour conversion, as programs show \
         them that know neither. <b>After</b>: upright, in sRGB.</p>\n</header>"
    )
    .ok();
    text.push_str("<nav aria-label=\"Images\">\n<ol>\n");
    for (number, entry) in (1..).zip(entries) {
        let (grade, name) = (Grade::of(&entry.report), name(&entry.report));
        writeln!(text, "<li><a class=\"{}\" href=\"#image-{number}\">{name}</a></li>", grade.class()).ok();
    }
    text.push_str("</ol>\n</nav>\n<main id=\"images\">\n");
    (1..).zip(entries).for_each(|(number, entry)| article(number, entry, &mut text));
    text.push_str("</main>\n");
    text
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Grade {
    Sound,
    Defect,
    Reject,
}

impl Grade {
    fn of(report: &Report) -> Self {
        match report.outcome {
            Outcome::Ok => Self::Sound,
            Outcome::OkWithRepair => Self::Defect,
            Outcome::Reject => Self::Reject,
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Defect => "defect",
            Self::Reject => "reject",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Defect => "defect, repaired",
            Self::Reject => "rejected",
        }
    }
}

/// The file with its folder: files of many folders are often numbered alike.
fn name(report: &Report) -> String {
    let path = std::path::Path::new(&report.source.name);
    let parts: Vec<_> = path.components().rev().take(2).map(|part| part.as_os_str().to_string_lossy()).collect();
    escape(&verdict::shown(&parts.into_iter().rev().collect::<Vec<_>>().join("/").replace("//", "/")))
}

fn article(number: usize, entry: &Entry, text: &mut String) {
    let (report, grade, name) = (&entry.report, Grade::of(&entry.report), name(&entry.report));
    writeln!(
        text,
        "<article id=\"image-{number}\" aria-labelledby=\"title-{number}\">\n<h2 id=\"title-{number}\">{name} \
         <span class=\"badge {}\">{}</span></h2>",
        grade.class(),
        grade.word()
    )
    .ok();
    if let Some(failure) = &report.error {
        writeln!(text, "<p class=\"error\">{}</p>", escape(&verdict::shown(&failure.to_string()))).ok();
    }
    text.push_str("<div class=\"row\">\n");
    figure("Before", "stored pixels of", &name, entry.before.as_deref(), text);
    figure("After", "upright sRGB picture of", &name, entry.after.as_deref(), text);
    if let Some(primaries) = report.colour.as_ref().and_then(|colour| colour.primaries) {
        gamut::figure(number, &primaries, text);
    }
    facts(report, text);
    text.push_str("</div>\n");
    findings(report, text);
    text.push_str("</article>\n");
}

fn figure(title: &str, what: &str, name: &str, png: Option<&[u8]>, text: &mut String) {
    match png {
        Some(png) => writeln!(
            text,
            "<figure><div class=\"picture\"><img alt=\"{what} {name}\" src=\"data:image/png;base64,{}\"></div>\
             <figcaption>{title}</figcaption></figure>",
            base64(png)
        ),
        None => writeln!(
            text,
            "<figure><div class=\"picture none\">not decoded</div><figcaption>{title}</figcaption></figure>"
        ),
    }
    .ok();
}

fn model(model: Model) -> &'static str {
    match model {
        Model::Gray => "gray",
        Model::Rgb => "RGB",
        Model::Cmyk => "CMYK",
        Model::Lab => "L*a*b*",
    }
}

fn facts(report: &Report, text: &mut String) {
    let mut facts: Vec<(&str, String)> = vec![("File", report.source.name.clone())];
    if let Some(image) = &report.image {
        let ([sw, sh], [uw, uh]) = (image.stored, image.upright);
        let format = report.source.format.map_or(String::new(), |format| format!("{format:?}").to_uppercase());
        facts.push(("Stored", format!("{format}, {sw} \u{d7} {sh}, {} bits {}", image.bits, model(image.model))));
        let turned = if image.orientation == 1 {
            "as stored".into()
        } else {
            format!("turned from orientation {}", image.orientation)
        };
        facts.push(("Upright", format!("{uw} \u{d7} {uh}, {turned}")));
    }
    if let Some(colour) = &report.colour {
        facts.push(("Colour", format!("{} ({})", colour.description, colour.interpretation)));
        // Nothing has to be done to sRGB.
        if !matches!(colour.engine.as_str(), "" | "none") {
            facts.push(("Converted by", colour.engine.clone()));
        }
    }
    if let Some(evidence) = &report.linear_evidence {
        let (code, linear, srgb) = (evidence.median_code, evidence.lightness_as_linear, evidence.lightness_as_srgb);
        facts.push(("Median code", format!("{code}: L* {linear} as linear light, {srgb} as sRGB")));
    }
    facts.push(("Bytes", report.source.bytes.to_string()));
    text.push_str("<dl>\n");
    for (term, value) in facts {
        writeln!(text, "<div><dt>{term}</dt><dd>{}</dd></div>", escape(&verdict::shown(&value))).ok();
    }
    text.push_str("</dl>\n");
}

fn findings(report: &Report, text: &mut String) {
    if report.findings.is_empty() {
        text.push_str("<p class=\"note\">No findings.</p>\n");
        return;
    }
    text.push_str(
        "<table>\n<caption>Findings</caption>\n<thead><tr><th scope=\"col\">Severity</th><th scope=\"col\">Finding</th>\
         <th scope=\"col\">Found</th><th scope=\"col\">Decided</th></tr></thead>\n<tbody>\n",
    );
    let mut sorted: Vec<&Finding> = report.findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    for finding in sorted {
        let severity = match finding.severity {
            Severity::Info => "info",
            Severity::Defect => "defect",
            Severity::Fatal => "fatal",
        };
        let cell = |value: &str| escape(&verdict::shown(value));
        let place =
            if finding.place.is_empty() { String::new() } else { format!("<small>{}</small>", cell(&finding.place)) };
        writeln!(
            text,
            "<tr><td><span class=\"badge {severity}\">{severity}</span></td><th scope=\"row\"><code>{}</code>\
             <small>{}</small></th><td>{}{place}</td><td>{}</td></tr>",
            finding.code.as_str(),
            escape(finding.code.meaning()),
            cell(&finding.found),
            cell(&verdict::decided(report, finding)),
        )
        .ok();
    }
    text.push_str("</tbody>\n</table>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use refmill::finding::FindingCode;
    use refmill::report::Source;

    #[test]
    fn text_from_outside_stays_text() {
        let hostile = "\"><img src=x onerror=alert(1)>'&";
        let mut report = Report::new(Source { name: format!("a/{hostile}"), ..Source::default() });
        report.find(Finding::new(FindingCode::IccCorrupt, hostile, hostile));
        let html = render(&[Entry { report, before: None, after: None }]);
        assert!(!html.contains("<img"), "{html}");
        // In the list, in the title, as the file, and twice in the finding.
        assert_eq!(html.matches("&quot;&gt;&lt;img src=x onerror=alert(1)&gt;&#39;&amp;").count(), 5);
    }
}
