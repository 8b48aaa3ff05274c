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
    use crate::args::Args;
    use clap::{CommandFactory, Parser};
    use std::collections::BTreeSet;

    #[test]
    fn a_former_name_is_parsed_as_its_new_name_with_one_warning() {
        for (former, now) in OPTIONS {
            let lines: Vec<_> = LINES.iter().filter(|(_, option, _)| *option == now).collect();
            assert!(!lines.is_empty(), "{now} is in no line");
            for &(command, _, value) in lines {
                compare(command, [former, value], [now, value], [former, now]);
            }
        }
        for (option, former, now) in VALUES {
            let line = LINES.iter().find(|(_, of, value)| (*of, *value) == (option, now));
            let &(command, ..) = line.unwrap_or_else(|| panic!("{option} {now} is in no line"));
            compare(command, [option, former], [option, now], [former, now]);
        }
    }

    #[test]
    fn every_alias_is_in_the_tables() {
        let (mut options, mut values) = (BTreeSet::new(), BTreeSet::new());
        let mut commands = vec![Args::command()];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            for arg in command.get_arguments() {
                let Some(name) = arg.get_long() else { continue };
                for alias in arg.get_all_aliases().unwrap_or_default() {
                    options.insert((format!("--{alias}"), format!("--{name}")));
                }
                for value in arg.get_possible_values() {
                    let now = value.get_name().to_owned();
                    let former = value.get_name_and_aliases().skip(1);
                    values.extend(former.map(|former| (format!("--{name}"), former.to_owned(), now.clone())));
                }
            }
        }
        let owned = OPTIONS.map(|(former, now)| (former.to_owned(), now.to_owned()));
        assert_eq!(options, BTreeSet::from(owned));
        let owned = VALUES.map(|(option, former, now)| (option.to_owned(), former.to_owned(), now.to_owned()));
        assert_eq!(values, BTreeSet::from(owned));
    }

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

    /// Compares two command lines with different options or values, with a blank and with `=` between them.
    fn compare(command: &str, former: [&str; 2], now: [&str; 2], names: [&str; 2]) {
        for between in [" ", "="] {
            let [former, now] = [former, now].map(|words| format!("wideload {command} {}", words.join(between)));
            assert_eq!(parsed(&former), parsed(&now), "{former}");
            let said = warnings(former.split(' ').skip(1).map(str::to_owned));
            assert!(said.len() == 1 && names.iter().all(|name| said[0].contains(*name)), "{former}: {said:?}");
            assert_eq!(warnings(now.split(' ').skip(1).map(str::to_owned)), [""; 0], "{now}");
        }
    }

    fn parsed(line: &str) -> String {
        let args = Args::try_parse_from(line.split(' ')).unwrap_or_else(|error| panic!("{line}: {error}"));
        format!("{args:?}")
    }

    /// A command with each renamed option and each renamed value: command, option, value.
    const LINES: [(&str, &str, &str); 11] = [
        (REWRITE, "--icmp-source", "192.0.2.1"),
        (REWRITE, "--fragment-policy", "merge"),
        (REWRITE, "--fragment-policy", "reassemble-hop"),
        (REWRITE, "--fragment-policy-for", "192.0.2.0/24"),
        (REWRITE, "--timeout", "0.1"),
        (REWRITE, "--off", "merge"),
        ("lab differential", "--gso-packets", "5"),
        ("lab border", "--scene", "no-gro"),
        ("lab border", "--scene", "middle-gro"),
        ("lab border", "--scene", "gro"),
        ("lab border", "--scene", "tso"),
    ];
    const REWRITE: &str = "rewrite in.pcap out.pcap --mtu 9000";
}
