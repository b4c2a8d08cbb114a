# What an add does is the updater's business; initial values are stored as given.
mode async
array steps sgd float32 10 10
get steps 10 10 + 0 0
barrier
add steps 1 -0.5
barrier
get steps 10 10 + -1 0.5
fails ConfigurationError array never magic float32 1
fails ConfigurationError array never adagrad int32 1
