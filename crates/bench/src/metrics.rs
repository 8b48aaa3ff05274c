//! Measurements of several rounds -> a median, a spread and a ratio.
//!
//! Ratios are formed within each round, because a busy machine slows all systems of a round alike.

/// The figures of one system over the rounds of one workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures(Vec<f64>);

impl Figures {
    /// Adds a round's figure.
    pub fn push(&mut self, figure: f64) {
        self.0.push(figure);
    }

    /// Returns the median; `None` without rounds.
    pub fn median(&self) -> Option<f64> {
        median(self.0.clone())
    }

    /// Returns the minimum and the maximum; `None` without rounds.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let (least, greatest) =
            (self.0.iter().copied().reduce(f64::min)?, self.0.iter().copied().reduce(f64::max)?);
        Some((least, greatest))
    }

    /// Returns the median of the ratios to `base` in each round. A slow phase of the machine affects both figures
    /// of a round, but not their ratio. `None` if the numbers of rounds differ.
    pub fn ratio(&self, base: &Figures) -> Option<f64> {
        if self.0.len() != base.0.len() {
            return None;
        }
        median(self.0.iter().zip(&base.0).map(|(ours, theirs)| ours / theirs).collect())
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    let upper = *figures.get(middle)?;
    Some(if figures.len() % 2 == 1 { upper } else { (figures[middle - 1] + upper) / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_lies_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 30.0]), Some(3.0));
        assert_eq!(Figures(vec![4.0, 1.0, 2.0]).spread(), Some((1.0, 4.0)));
    }

    #[test]
    fn a_slow_round_does_not_show_in_a_ratio() {
        let base = Figures(vec![10.0, 10.0, 10.0, 20.0, 20.0]);
        let other = Figures(vec![20.0, 21.0, 20.0, 40.0, 40.0]);
        assert_eq!(other.ratio(&base), Some(2.0));
        assert_eq!(other.ratio(&Figures(vec![1.0])), None, "a system that died has no ratio");
    }
}
