//! A line that passes all points within a distance, if there is one: O'Rourke's algorithm (An On-Line
//! Algorithm for Fitting Straight Lines Between Data Ranges, 1981), which the PGM-index and TreeLine (§4.5)
//! use. It needs one pass, and finds a line if and only if one exists.
//!
//! Each point is a vertical range, from bottom to top, that the line must intersect. Of all lines through the
//! ranges so far, the *steepest* goes through a bottom and a later top, the *flattest* through a top and a
//! later bottom. A new range excludes lines at either end. The new extremes are found on the convex hulls of
//! bottoms and tops.
//!
//! **Invariants**
//! - Positions ascend. Distances are compared as integers, without rounding.

/// A point in the plane: position and offset.
type Place = (i128, i128);

/// The set of lines through all ranges.
#[derive(Debug, Default)]
pub(crate) struct LineFit {
    /// Lower hull of the tops, and upper hull of the bottoms.
    tops: Vec<Place>,
    bottoms: Vec<Place>,
    steepest: Option<(Place, Place)>,
    flattest: Option<(Place, Place)>,
}

/// A line through the point (`position`, `offset`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) position: f64,
    pub(crate) offset: f64,
    pub(crate) slope: f64,
}

/// Cross product: positive if the path `from`, `over`, `to` turns left, that is, upwards.
fn turn(from: Place, over: Place, to: Place) -> i128 {
    (over.0 - from.0) * (to.1 - from.1) - (over.1 - from.1) * (to.0 - from.0)
}

/// Adds a point to a hull; `keeps` decides which turns belong to the hull.
fn extend(hull: &mut Vec<Place>, place: Place, keeps: impl Fn(i128) -> bool) {
    while let [.., before, last] = hull[..]
        && !keeps(turn(before, last, place))
    {
        hull.pop();
    }
    hull.push(place);
}

impl LineFit {
    /// Adds a range. Returns `false`, without effect, if no line intersects it and all earlier ones.
    /// REQUIRES: its position is greater than those before, and its bottom is not above its top.
    pub(crate) fn add(&mut self, position: i128, bottom: i128, top: i128) -> bool {
        let (bottom, top) = ((position, bottom), (position, top));
        if let (Some(steepest), Some(flattest)) = (self.steepest, self.flattest) {
            if turn(steepest.0, steepest.1, bottom) > 0 || turn(flattest.0, flattest.1, top) < 0 {
                return false;
            }
            if turn(steepest.0, steepest.1, top) < 0 {
                self.steepest = self.least_steep_to(top);
            }
            if turn(flattest.0, flattest.1, bottom) > 0 {
                self.flattest = self.least_flat_to(bottom);
            }
        } else if let (Some(first_bottom), Some(first_top)) = (self.bottoms.first(), self.tops.first()) {
            self.steepest = Some((*first_bottom, top));
            self.flattest = Some((*first_top, bottom));
        }
        extend(&mut self.tops, top, |turn| turn > 0);
        extend(&mut self.bottoms, bottom, |turn| turn < 0);
        true
    }

    /// Returns the line to `top` that stays above all bottoms.
    fn least_steep_to(&self, top: Place) -> Option<(Place, Place)> {
        let from = self.bottoms.iter().copied().reduce(|one, other| {
            let is_above = turn(one, top, other) > 0;
            if is_above { other } else { one }
        });
        from.map(|from| (from, top))
    }

    /// Returns the line to `bottom` that stays below all tops.
    fn least_flat_to(&self, bottom: Place) -> Option<(Place, Place)> {
        let from = self.tops.iter().copied().reduce(|one, other| {
            let is_below = turn(one, bottom, other) < 0;
            if is_below { other } else { one }
        });
        from.map(|from| (from, bottom))
    }

    /// Returns the mean of the steepest and the flattest line; `None` without points.
    #[expect(clippy::cast_precision_loss, reason = "callers check the result")]
    pub(crate) fn line(&self) -> Option<Line> {
        let (Some(steepest), Some(flattest)) = (self.steepest, self.flattest) else {
            let (bottom, top) = (self.bottoms.first()?, self.tops.first()?);
            let offset = i128::midpoint(bottom.1, top.1) as f64;
            return Some(Line { position: bottom.0 as f64, offset, slope: 0.0 });
        };
        // Positions are large and close together: they are measured from the first.
        let origin = steepest.0.0;
        let slope = |(from, to): (Place, Place)| (to.1 - from.1) as f64 / (to.0 - from.0) as f64;
        let at_origin = |line: (Place, Place)| line.0.1 as f64 - slope(line) * (line.0.0 - origin) as f64;
        Some(Line {
            position: origin as f64,
            offset: f64::midpoint(at_origin(steepest), at_origin(flattest)),
            slope: f64::midpoint(slope(steepest), slope(flattest)),
        })
    }
}

#[cfg(test)]
mod tests;
