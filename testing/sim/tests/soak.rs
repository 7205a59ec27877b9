//! The soak, short; in its own process, because it measures the process.

use testudo_sim::{Limits, layers::find};

#[test]
fn a_store_under_faults_stays_correct_and_flat() {
    let soak = find("soak").expect("a layer of this name");
    match (soak.run)(&Limits::default()) {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}
