//! Runs with equal seeds are identical.

use testudo_base::checksum::checksum64;
use testudo_testkit::{Generator, Runner, configuration::crash_configurations};

#[test]
fn runs_with_one_seed_are_identical() {
    for configuration in crash_configurations() {
        let script = Generator::new(&configuration.profile, 3).script(1500);
        let run = || {
            let mut runner = Runner::new(&configuration.opener, 3);
            let report = runner.run(&script).unwrap_or_else(|failure| panic!("{failure}"));
            let files = runner.machine().all_files();
            let contents: Vec<_> =
                files.iter().map(|path| checksum64(&runner.machine().file_bytes(path).unwrap(), 0)).collect();
            (report, files, contents, runner.machine().operation_count())
        };
        assert_eq!(run(), run(), "{}", configuration.name);
    }
}
