//! A case -> its text, such as `7,without=loss,count=12`, and back.

use super::{Case, Failure};
use crate::coverage::Fault;
use crate::injected_bug::InjectedBug;
use core::fmt;
use core::str::FromStr;

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let mut words = text.split(',');
        let seed = words.next().unwrap_or_default();
        let seed = seed
            .parse()
            .map_err(|_| format!("`{seed}` is not a seed; a case begins with a number, such as 7,count=12"))?;
        let mut case = Case::of(seed);
        for word in words {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("`{word}` has no value; write KEY=VALUE"))?;
            let names = value.split('+');
            match key {
                "without" => case.without = names.map(fault_named).collect::<Result<_, _>>()?,
                "flows" => case.flows = Some(names.map(number).collect::<Result<_, _>>()?),
                "count" => case.count_max = Some(number(value)?),
                // The key of version 0.1 was `bend`.
                "bug" | "bend" => case.bug = Some(bug_named(value)?),
                _ => {
                    return Err(format!("unknown key `{key}`; the keys are without, flows, count, bug"));
                }
            }
        }
        Ok(case)
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number"))
}

fn fault_named(name: &str) -> Result<Fault, String> {
    // `junk` is the name of version 0.1.
    let name = if name == "junk" { "malformed" } else { name };
    Fault::ALL.into_iter().find(|fault| fault.name() == name).ok_or_else(|| format!("unknown fault `{name}`"))
}

fn bug_named(name: &str) -> Result<InjectedBug, String> {
    InjectedBug::ALL.into_iter().find(|bug| bug.name() == name).ok_or_else(|| format!("unknown bug `{name}`"))
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.seed)?;
        if !self.without.is_empty() {
            let names: Vec<&str> = self.without.iter().map(|fault| fault.name()).collect();
            write!(f, ",without={}", names.join("+"))?;
        }
        if let Some(flows) = &self.flows {
            let numbers: Vec<String> = flows.iter().map(usize::to_string).collect();
            write!(f, ",flows={}", numbers.join("+"))?;
        }
        if let Some(count) = self.count_max {
            write!(f, ",count={count}")?;
        }
        match self.bug {
            Some(bug) => write!(f, ",bug={}", bug.name()),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { case, what } = self;
        write!(f, "seed {}: {what}\nrepeat with: wideload lab swarm --case {case}", case.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_version_0_1_give_the_same_case() {
        for (former, now) in [
            ("7,without=junk", "7,without=malformed"),
            ("7,without=loss+junk+mark,flows=0+2,count=12", "7,without=loss+malformed+mark,flows=0+2,count=12"),
            ("7,without=junk,bend=too-long", "7,without=malformed,bug=too-long"),
        ] {
            let case = now.parse::<Case>().unwrap_or_else(|error| panic!("{now}: {error}"));
            assert_eq!(former.parse::<Case>(), Ok(case.clone()), "{former}");
            assert_eq!(case.to_string(), now);
        }
        for bug in InjectedBug::ALL {
            let case = Case { bug: Some(bug), ..Case::of(7) };
            assert_eq!(format!("7,bend={}", bug.name()).parse::<Case>(), Ok(case.clone()));
            assert_eq!(format!("7,bug={}", bug.name()).parse::<Case>(), Ok(case));
        }
    }
}
