# What is refused changes nothing, and says why by its kind.
mode async
array weights add float32 1 2 3
fails ShapeMismatch add weights 1 2
fails ShapeMismatch add weights 1 2 3 4
matrix rows add float32 2 2
fails UnknownKey add_rows rows 2 1 1
fails UnknownKey add_rows rows -1 1 1
fails UnknownKey get_rows rows 5 0 0 + 0 0
fails ShapeMismatch add_rows rows 0,1 1 1
barrier
get weights 1 2 3 + 0 0 0
get rows 0 0 0 0 + 0 0 0 0
