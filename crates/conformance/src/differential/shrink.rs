//! Cuts a failing stream down (delta debugging, Zeller and Hildebrandt 2002: ever smaller runs of commands are left out
//! as long as the rest still fails).

use super::stream::{Role, Stream};

/// A shrink that needs more tries than this stops with what it has.
const MOST_TRIES: usize = 600;

/// The smallest stream found for which `fails` still holds; `stream` itself must fail.
pub fn shrink(stream: &Stream, mut fails: impl FnMut(&Stream) -> bool) -> Stream {
    let mut smallest = stream.clone();
    let mut tries = 0;
    let mut try_it = |candidate: Stream, smallest: &mut Stream| {
        tries += 1;
        let failed = tries <= MOST_TRIES && !candidate.commands.is_empty() && fails(&candidate);
        if failed {
            *smallest = candidate;
        }
        failed
    };
    let mut run = smallest.commands.len();
    while run > 0 {
        let mut start = 0;
        let mut removed = false;
        while start < smallest.commands.len() {
            let mut candidate = smallest.clone();
            let end = (start + run).min(candidate.commands.len());
            let starts_batch = candidate.commands.drain(start..end).any(|command| command.starts_batch);
            if let Some(next) = candidate.commands.get_mut(start) {
                next.starts_batch |= starts_batch;
            }
            if try_it(candidate, &mut smallest) {
                removed = true;
            } else {
                start += run;
            }
        }
        if !(removed && run == 1) {
            run /= 2;
        }
    }
    let mut whole = smallest.clone();
    whole.splits.mean_bytes = 0;
    try_it(whole, &mut smallest);
    for index in (0..smallest.commands.len()).rev() {
        if smallest.commands[index].role == Role::Arithmetic {
            continue;
        }
        let mut joined = smallest.clone();
        if std::mem::take(&mut joined.commands[index].starts_batch) {
            try_it(joined, &mut smallest);
        }
    }
    smallest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::stream::{Command, Protocol, Splits};

    #[test]
    fn two_needles_are_all_that_is_left_of_the_haystack() {
        let mut commands: Vec<Command> = (0..200).map(|number: u32| Command::new(number.to_string())).collect();
        commands[30].starts_batch = true;
        let stream = Stream { protocol: Protocol::Text, commands, splits: Splits { seed: 1, mean_bytes: 7 } };
        let holds = |stream: &Stream, text: &str| {
            stream.commands.iter().any(|command| command.pieces == Command::new(text).pieces)
        };
        let smallest = shrink(&stream, |stream| holds(stream, "30") && holds(stream, "171"));
        let texts: Vec<String> = smallest.commands.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["30", "171"], "and the replies need not be read between them");
        assert_eq!(smallest.splits.mean_bytes, 0);
    }
}
