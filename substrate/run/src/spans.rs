//! Where the pages of a run are: a run is one sequence of pages over one or several spans of the data file.

/// The physical page of a run's page, and how many pages follow it in the same span (itself included).
pub(crate) fn locate(spans: impl Iterator<Item = testudo_base::ExtentSpan>, page: u32) -> Option<(u64, u32)> {
    let mut left = page;
    for span in spans {
        if left < span.page_count {
            return Some((span.first_page + u64::from(left), span.page_count - left));
        }
        left -= span.page_count;
    }
    None
}
