# Rank 1 is killed; rank 0, which waits for its push, must name it.
use strict;
use warnings;
use PDL;
use Syncline::KVStore;

my $kv = Syncline::KVStore->create('dist_sync');
$kv->init('w', zeroes(float, 3));
$kv->barrier;
kill KILL => $$ if $kv->rank == 1;
# The push may hear of it already.
eval { $kv->push('w', ones(float, 3)); $kv->pull('w'); 1 };
my $error = $@;
printf "%s of rank %s, pid %s\n", $error->kind, $error->rank // 'nobody', defined $error->pid ? 'known' : 'unknown';
print "$error";
exit 3;
