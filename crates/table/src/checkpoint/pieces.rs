//! Which file holds which rows of which lane.

use super::manifest::Manifest;
use super::shard::{Part, TensorRecord};
use crate::Shape;

/// Rows of one lane, or keys of one table, in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The place of the file in the manifest.
    pub(super) shard: usize,
    /// The place of the tensor among the file's.
    pub(super) tensor: usize,
    pub(super) first_row: u64,
    pub(super) rows: u64,
}

/// All pieces of a checkpoint, checked to hold every row exactly once.
#[derive(Debug)]
pub(super) struct Pieces {
    /// For each table and lane, in order of rows.
    lanes: Vec<Vec<Vec<Piece>>>,
    /// For each table the keys and the values beside them.
    keys: Vec<Vec<(Piece, Piece)>>,
}

impl Pieces {
    /// Where everything is according to the manifest, or what is wrong with it.
    pub(super) fn of(manifest: &Manifest) -> Result<Pieces, String> {
        let tables = &manifest.tables;
        let mut lanes: Vec<Vec<Vec<Piece>>> = tables.iter().map(|table| vec![Vec::new(); table.lanes.len()]).collect();
        let mut keys: Vec<Vec<(Piece, Piece)>> = vec![Vec::new(); tables.len()];
        for (shard, record) in manifest.shards.iter().enumerate() {
            let mut waiting: Vec<Option<Piece>> = vec![None; tables.len()];
            for (tensor, TensorRecord { name, table, part, first_row, rows }) in record.tensors.iter().enumerate() {
                let piece = Piece { shard, tensor, first_row: *first_row, rows: *rows };
                let table = *table as usize;
                let nowhere = || format!("{}: tensor {name:?} belongs to no table", record.file);
                let is_keys = tables.get(table).ok_or_else(nowhere)?.shape == Shape::Keys;
                match part {
                    Part::Lane(lane) if !is_keys => lanes[table].get_mut(*lane as usize).ok_or_else(nowhere)?.push(piece),
                    Part::Keys if is_keys && waiting[table].is_none() => waiting[table] = Some(piece),
                    Part::Values if is_keys => match waiting[table].take() {
                        Some(its) if its.rows == piece.rows => keys[table].push((its, piece)),
                        _ => return Err(format!("{}: tensor {name:?} does not match its keys", record.file)),
                    },
                    _ => return Err(nowhere()),
                }
            }
            if let Some(table) = waiting.iter().position(Option::is_some) {
                return Err(format!("{}: `{}` has keys without values", record.file, tables[table].name));
            }
        }
        for (table, its_lanes) in tables.iter().zip(&mut lanes).filter(|(table, _)| table.shape != Shape::Keys) {
            for (lane, pieces) in table.lanes.iter().zip(its_lanes) {
                pieces.sort_by_key(|piece| (piece.first_row, piece.rows));
                let tiled =
                    pieces.iter().try_fold(0, |next, piece| (piece.first_row == next).then(|| next.checked_add(piece.rows)).flatten());
                if tiled != Some(table.rows()) {
                    let held: Vec<String> = pieces.iter().map(|piece| format!("{} from {}", piece.rows, piece.first_row)).collect();
                    let (name, lane, rows) = (&table.name, &lane.name, table.rows());
                    return Err(format!(
                        "`{name}` ({lane}) has {rows} rows, and the shards hold not each of them once: {}",
                        held.join(", ")
                    ));
                }
            }
        }
        Ok(Pieces { lanes, keys })
    }

    /// The pieces of a lane in order of rows.
    pub(super) fn lane(&self, table: usize, lane: usize) -> &[Piece] {
        &self.lanes[table][lane]
    }

    /// The pieces of a key-value table: keys and values.
    pub(super) fn keys(&self, table: usize) -> &[(Piece, Piece)] {
        &self.keys[table]
    }
}
