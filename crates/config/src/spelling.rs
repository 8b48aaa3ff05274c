//! A misspelt word and the known words -> the intended word.
//!
//! Error messages suggest the intended word for a misspelt key or value.

/// Returns the known word that is nearest to `word`; `None` if no known word is near enough.
pub(crate) fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let spelled = |word: &str| word.to_lowercase().replace(['_', ' '], "-").chars().collect::<Vec<_>>();
    let word = spelled(word);
    let near = (word.len() / 3).max(1);
    let distances = words.map(|other| (distance(&word, &spelled(other)), other));
    let close = |(far, other): &(usize, &str)| *far <= near && *far < other.len() && word.len() <= WORD_LEN_MAX;
    distances.filter(close).min_by_key(|(far, _)| *far).map(|(_, other)| other)
}

/// Returns the edit distance of two words (optimal string alignment): letters replaced, added, missing, or swapped
/// with their neighbour.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut rows = vec![vec![0; other.len() + 1]; one.len() + 1];
    for i in 0..=one.len() {
        for j in 0..=other.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let differ = usize::from(one[i - 1] != other[j - 1]);
                let single = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + differ);
                let swapped = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
                if swapped { single.min(rows[i - 2][j - 2] + 1) } else { single }
            };
        }
    }
    rows[one.len()][other.len()]
}

/// Maximum length of a word for which a suggestion is searched, in letters.
const WORD_LEN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_suggests_the_word_and_an_unrelated_word_suggests_none() {
        let words = ["icmp-source", "mtu", "port", "reassemble", "hold"];
        for (slip, meant) in [
            ("icmp_source", Some("icmp-source")),
            ("Icmp Source", Some("icmp-source")),
            ("mut", Some("mtu")),
            ("MTU", Some("mtu")),
            ("mt", Some("mtu")),
            ("ports", Some("port")),
            ("resasemble", Some("reassemble")),
            ("reasembly", Some("reassemble")),
            ("hodl", Some("hold")),
            ("xyz", None),
            ("", None),
            ("mss", None),
            ("timeout", None),
        ] {
            assert_eq!(nearest(slip, words.into_iter()), meant, "{slip}");
        }
    }
}
