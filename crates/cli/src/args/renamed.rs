//! Arguments of version 0.1 -> a warning for each.
//!
//! clap accepts the former names as aliases. Version 0.3 removes this file and the aliases.

/// Options of `wideload rewrite` and of `wideload lab differential`: former name, name.
const OPTIONS: [(&str, &str); 5] = [
    ("--answer-from", "--icmp-source"),
    ("--join", "--fragment-policy"),
    ("--join-for", "--fragment-policy-for"),
    ("--patience", "--timeout"),
    ("--trains", "--gso-packets"),
];

/// Values: option, former value, value.
const VALUES: [(&str, &str, &str); 7] = [
    ("--fragment-policy", "graceful", "merge"),
    ("--fragment-policy", "hop", "reassemble-hop"),
    ("--off", "join", "merge"),
    ("--scene", "apart", "no-gro"),
    ("--scene", "between", "middle-gro"),
    ("--scene", "joined", "gro"),
    ("--scene", "trains", "tso"),
];

/// A sentence for each former name among the arguments of a command.
pub fn warnings(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut args = args.take_while(|arg| arg != "--").peekable();
    while let Some(arg) = args.next() {
        let (option, inline) = match arg.split_once('=') {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (arg.as_str(), None),
        };
        let renamed = OPTIONS.iter().find(|(former, _)| *former == option);
        if let Some((former, now)) = renamed {
            warnings.push(format!("{former} is now called {now}; version 0.3 removes the former name"));
        }
        let option = renamed.map_or(option, |(_, now)| *now);
        let Some(values) = inline.or_else(|| args.peek().cloned()) else { continue };
        for (of, former, now) in VALUES {
            if of == option && values.split(',').any(|value| value == former) {
                warnings.push(format!("{of} {former} is now called {now}; version 0.3 removes the former name"));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_former_name_is_a_warning() {
        let of = |line: &str| warnings(line.split(' ').map(str::to_owned)).len();
        assert_eq!(of("rewrite a b --mtu 9000 --fragment-policy merge --off merge --timeout 1"), 0);
        assert_eq!(of("rewrite a b --mtu 9000 --join graceful --patience=0.1"), 3);
        assert_eq!(
            of("rewrite a b --join=hop --join-for 10.0.0.0/8 --off coalesce,join --answer-from 192.0.2.1"),
            5
        );
        assert_eq!(of("rewrite -- --join graceful"), 0);
        assert_eq!(of("lab differential --trains 5"), 1);
        assert_eq!(of("lab border --scene plain,apart,trains"), 2);
    }
}
