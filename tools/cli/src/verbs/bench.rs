//! `testudo bench`: measurements of the bench library, with Ctrl-C caught.

use testudo_bench::Outcome as BenchOutcome;

use crate::{
    context::Context,
    failure::{Failure, Outcome, Verdict, say},
};

pub(crate) use testudo_bench::BenchArgs as BenchArguments;

/// Runs one measurement; wrong answers of the store are exit code 1.
pub(crate) fn run(context: &mut Context, arguments: &BenchArguments) -> Outcome {
    let interruption = context.catch_interruption()?;
    let bench = testudo_bench::Context::new(interruption.flag());
    match testudo_bench::run(&arguments.command, &bench) {
        Ok(BenchOutcome::Fine) => Ok(Verdict::Fine),
        Ok(BenchOutcome::WrongAnswers(count)) => {
            say(&format!("bench: the store returned {count} wrong answers"));
            Ok(Verdict::Negative)
        }
        Err(error) => Err(Failure::about("bench", error)),
    }
}
