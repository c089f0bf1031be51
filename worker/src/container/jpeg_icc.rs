//! Puts an ICC profile together from JPEG APP2 chunks (ICC.1:2022 B.4).

use refmill::finding::{Finding, FindingCode};
use refmill::limits::Limits;

use super::Block;
use crate::bytes::{slice, u8_at};

const TAG: &[u8] = b"ICC_PROFILE\0";

/// Chunks as they come.
#[derive(Debug, Default)]
pub struct IccChunks<'a> {
    chunks: Vec<Chunk<'a>>,
}

#[derive(Debug, Clone, Copy)]
struct Chunk<'a> {
    offset: usize,
    number: u8,
    total: u8,
    bytes: &'a [u8],
}

impl<'a> IccChunks<'a> {
    /// Takes the payload of an APP2 segment; one that is no profile chunk is left alone.
    pub fn add(&mut self, offset: usize, payload: &'a [u8]) {
        let Some(body) = payload.strip_prefix(TAG) else { return };
        let (Some(number), Some(total)) = (u8_at(body, 0), u8_at(body, 1)) else { return };
        let bytes = slice(body, 2, body.len().saturating_sub(2)).unwrap_or_default();
        self.chunks.push(Chunk { offset, number, total, bytes });
    }

    /// The profile, where all its chunks are there; findings say what was wrong with them.
    pub fn assemble(mut self, limits: &Limits, findings: &mut Vec<Finding>) -> Option<Block<'a>> {
        if let Some(second) = self.second_profile() {
            let found = format!("{} complete profiles, one after the other", second.profiles);
            let place = format!("APP2 at byte {}", second.offset);
            findings.push(Finding::new(FindingCode::IccMultiple, place, found).at(second.offset));
            self.chunks.truncate(second.at);
        }
        let first = *self.chunks.first()?;
        let place = format!("APP2 at byte {}", first.offset);
        let mut find = |code, found: String| findings.push(Finding::new(code, place.clone(), found).at(first.offset));
        let total = usize::from(first.total);
        let odd = self.chunks.iter().find(|c| c.total != first.total || c.number == 0 || c.number > c.total);
        if let Some(odd) = odd {
            find(
                FindingCode::IccChunkOutOfOrder,
                format!("chunk {} of {}, first chunk says {total}", odd.number, odd.total),
            );
            return None;
        }
        if !self.chunks.is_sorted_by_key(|chunk| chunk.number) {
            let order: Vec<String> = self.chunks.iter().map(|chunk| chunk.number.to_string()).collect();
            find(FindingCode::IccChunkOutOfOrder, format!("chunks come as {}", order.join(", ")));
        }
        let mut slots: Vec<Option<&[u8]>> = vec![None; total];
        for chunk in &self.chunks {
            let slot = slots.get_mut(usize::from(chunk.number).saturating_sub(1))?;
            match slot {
                None => *slot = Some(chunk.bytes),
                Some(earlier) => {
                    let same = *earlier == chunk.bytes;
                    let verdict = if same { "with the same bytes" } else { "with other bytes" };
                    find(
                        FindingCode::IccChunkDuplicate,
                        format!("chunk {} of {total} stands twice, {verdict}", chunk.number),
                    );
                    if !same {
                        return None;
                    }
                }
            }
        }
        if let Some(missing) = slots.iter().position(Option::is_none) {
            find(FindingCode::IccChunkMissing, format!("chunk {} of {total} is missing", missing + 1));
            return None;
        }
        let size: usize = slots.iter().flatten().map(|bytes| bytes.len()).sum();
        if size as u64 > limits.metadata_bytes {
            find(FindingCode::OverLimit, format!("profile of {size} bytes, the limit is {}", limits.metadata_bytes));
            return None;
        }
        Some(match slots.as_slice() {
            [Some(only)] => Block::inside(place, first.offset, first.offset + 4 + TAG.len() + 2, only),
            _ => Block::made(
                place,
                Some(first.offset),
                slots.into_iter().flatten().flatten().copied().collect::<Vec<_>>(),
            ),
        })
    }
}

/// Where a second profile begins.
struct Second {
    at: usize,
    offset: usize,
    profiles: usize,
}

impl IccChunks<'_> {
    /// Where the chunks are several whole profiles, each 1 to its total in order, and not one with a chunk twice.
    fn second_profile(&self) -> Option<Second> {
        let (mut at, mut starts) = (0, Vec::new());
        while let Some(rest) = self.chunks.get(at..).filter(|rest| !rest.is_empty()) {
            let total = usize::from(rest.first()?.total);
            let profile = rest.get(..total).filter(|profile| !profile.is_empty())?;
            let in_order = (1..)
                .zip(profile)
                .all(|(number, chunk)| usize::from(chunk.number) == number && usize::from(chunk.total) == total);
            if !in_order {
                return None;
            }
            starts.push(at);
            at += total;
        }
        let at = *starts.get(1)?;
        Some(Second { at, offset: self.chunks.get(at)?.offset, profiles: starts.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(chunks: &[(u8, u8, &[u8])]) -> (Option<Vec<u8>>, Vec<FindingCode>) {
        let payloads: Vec<Vec<u8>> =
            chunks.iter().map(|(number, total, bytes)| [TAG, &[*number, *total], bytes].concat()).collect();
        let mut collected = IccChunks::default();
        payloads.iter().for_each(|payload| collected.add(0, payload));
        let mut findings = Vec::new();
        let block = collected.assemble(&Limits::default(), &mut findings);
        (block.map(|b| b.bytes.into_owned()), findings.iter().map(|f| f.code).collect())
    }

    #[test]
    fn icc_chunk_out_of_order_is_put_in_order() {
        let (profile, codes) = assemble(&[(2, 2, b"b"), (1, 2, b"a")]);
        assert_eq!(
            (profile.as_deref(), codes.as_slice()),
            (Some(b"ab".as_slice()), [FindingCode::IccChunkOutOfOrder].as_slice())
        );
    }

    #[test]
    fn icc_chunk_missing_leaves_no_profile() {
        let (profile, codes) = assemble(&[(1, 3, b"a"), (3, 3, b"c")]);
        assert_eq!((profile, codes), (None, vec![FindingCode::IccChunkMissing]));
    }

    #[test]
    fn icc_chunk_duplicate_with_the_same_bytes_is_dropped() {
        let (profile, codes) = assemble(&[(1, 2, b"a"), (2, 2, b"b"), (2, 2, b"b")]);
        assert_eq!((profile.as_deref(), codes), (Some(b"ab".as_slice()), vec![FindingCode::IccChunkDuplicate]));
    }

    #[test]
    fn icc_multiple_whole_profiles_are_the_first() {
        let (profile, codes) = assemble(&[(1, 2, b"a"), (2, 2, b"b"), (1, 1, b"c")]);
        assert_eq!((profile.as_deref(), codes), (Some(b"ab".as_slice()), vec![FindingCode::IccMultiple]));
    }

    #[test]
    fn icc_chunk_duplicate_with_other_bytes_leaves_no_profile() {
        let (profile, codes) = assemble(&[(1, 2, b"a"), (2, 2, b"b"), (2, 2, b"c")]);
        assert_eq!((profile, codes), (None, vec![FindingCode::IccChunkDuplicate]));
    }

    #[test]
    fn icc_chunk_total_of_zero_leaves_no_profile() {
        let (profile, codes) = assemble(&[(1, 0, b"a")]);
        assert_eq!((profile, codes), (None, vec![FindingCode::IccChunkOutOfOrder]));
    }
}
