//! Lines of figures over common categories -> an SVG picture, without scripts and fonts of its own.

use std::fmt::Write as _;

/// A picture of several panels side by side.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Title of the picture.
    pub title: String,
    /// Name of the vertical axis, whose scale is logarithmic.
    pub axis: String,
    /// Names of the lines, in the order of each panel's lines.
    pub lines: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
}

/// A panel with one line for each system.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Title of the panel.
    pub title: String,
    /// Names of the categories on the horizontal axis.
    pub categories: Vec<String>,
    /// The figures of each line, by category; `None` if a figure is missing or not positive.
    pub lines: Vec<Vec<Option<f64>>>,
}

impl Chart {
    /// Draws the picture.
    pub fn svg(&self) -> String {
        let columns = self.panels.len().clamp(1, 2);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let (width, height) = (columns as f64 * WIDTH + 150.0, rows as f64 * HEIGHT + 50.0);
        let mut svg = String::new();
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"16\" y=\"26\" font-size=\"16\">{}</text>",
            escaped(&self.title)
        );
        for (number, panel) in self.panels.iter().enumerate() {
            let x = (number % columns) as f64 * WIDTH;
            let y = 40.0 + (number / columns) as f64 * HEIGHT;
            self.panel(&mut svg, panel, x, y);
        }
        let x = columns as f64 * WIDTH + 8.0;
        for (number, name) in self.lines.iter().enumerate() {
            let y = 70.0 + number as f64 * 20.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" {}/><text x=\"{}\" y=\"{}\">{}</text>",
                x + 26.0,
                stroke(number),
                x + 32.0,
                y + 4.0,
                escaped(name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn panel(&self, svg: &mut String, panel: &Panel, x: f64, y: f64) {
        let (left, top, wide, high) = (x + 60.0, y + 30.0, WIDTH - 80.0, HEIGHT - 80.0);
        let figures = || panel.lines.iter().flatten().flatten().copied().filter(|figure| *figure > 0.0);
        let least = 10f64.powf(figures().fold(f64::MAX, f64::min).log10().floor());
        let most = 10f64.powf(figures().fold(f64::MIN, f64::max).log10().ceil());
        let _ = writeln!(svg, "<text x=\"{left}\" y=\"{}\">{}</text>", top - 10.0, escaped(&panel.title));
        let _ = writeln!(
            svg,
            "<text transform=\"translate({},{}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            x + 16.0,
            top + high / 2.0,
            escaped(&self.axis)
        );
        if figures().next().is_none() || most <= least {
            return;
        }
        let at_y = |figure: f64| top + high * (most / figure).ln() / (most / least).ln();
        let at_x = |index: usize| left + wide * (index as f64 + 0.5) / panel.categories.len().max(1) as f64;
        let mut decade = least;
        while decade <= most * 1.01 {
            for figure in [1.0, 2.0, 5.0].map(|step| step * decade).into_iter().filter(|figure| *figure <= most) {
                let y = at_y(figure);
                let _ = writeln!(
                    svg,
                    "<line x1=\"{left}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                     <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{figure}</text>",
                    left + wide,
                    left - 6.0,
                    y + 4.0
                );
            }
            decade *= 10.0;
        }
        for (index, category) in panel.categories.iter().enumerate() {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#555\">{}</text>",
                at_x(index),
                top + high + 18.0,
                escaped(category)
            );
        }
        for (number, line) in panel.lines.iter().enumerate() {
            let points = line.iter().enumerate().filter_map(|(index, figure)| {
                figure.filter(|figure| *figure > 0.0).map(|figure| (at_x(index), at_y(figure)))
            });
            let points: Vec<String> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" {}/>", points.join(" "), stroke(number));
        }
    }
}

fn stroke(number: usize) -> String {
    let dash = if number < COLORS.len() { "" } else { " stroke-dasharray=\"5 3\"" };
    format!("stroke=\"{}\" stroke-width=\"2\"{dash}", COLORS[number % COLORS.len()])
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Width and height of a panel, in pixels.
const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
/// Colours that readers with any kind of colour vision tell apart (Okabe and Ito).
const COLORS: [&str; 8] = ["#000000", "#E69F00", "#56B4E9", "#009E73", "#D55E00", "#0072B2", "#CC79A7", "#999999"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_drawn_inside_its_panel() {
        let chart = Chart {
            title: "goodput <of> a & b".to_owned(),
            axis: "Mbit/s".to_owned(),
            lines: vec!["a".to_owned(), "b".to_owned()],
            panels: vec![
                Panel {
                    title: "10 ms".to_owned(),
                    categories: vec!["0".to_owned(), "1 %".to_owned()],
                    lines: vec![vec![Some(95.0), Some(3.0)], vec![None, Some(20.0)]],
                },
                Panel { title: "empty".to_owned(), categories: Vec::new(), lines: vec![vec![], vec![Some(0.0)]] },
            ],
        };
        let svg = chart.svg();
        assert!(svg.contains("goodput &lt;of&gt; a &amp; b"));
        let lines: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline")).collect();
        let points = |line: &str| -> Vec<(f64, f64)> {
            let list = line.split('"').nth(1).unwrap();
            list.split(' ')
                .map(|point| point.split_once(',').unwrap())
                .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
                .collect()
        };
        let [a, b] = lines[..] else { panic!("a panel with figures has two lines") };
        let (a, b) = (points(a), points(b));
        assert_eq!((a.len(), b.len()), (2, 1));
        // Larger figures are higher, and later categories further right.
        assert!(a[0].1 < b[0].1 && b[0].1 < a[1].1 && a[0].0 < a[1].0 && a[1].0 == b[0].0);
        assert!(a.iter().chain(&b).all(|(x, y)| (60.0..420.0).contains(x) && (70.0..340.0).contains(y)));
    }
}
