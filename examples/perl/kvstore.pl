# The key-value store, step by step, in Perl.
#
#   perl kvstore.pl                     alone
#   syncline run -n 2 perl kvstore.pl   two workers, the last part together
use strict;
use warnings;

use AI::MXNet qw(mx);

sub show { my ($what, $array) = @_; print "$what: ", join(' ', $array->aspdl->list), "\n" }

# --- a store of one process ---------------------------------------------------------------------------------------------------------

my $kv = mx->kv->create('local');
my $shape = [2, 3];

# A key is made once, with a value; pull copies it out.
$kv->init(3, mx->nd->ones($shape) * 2);
my $a = mx->nd->zeros($shape);
$kv->pull(3, out => $a);
show('after init', $a);                          # 2 2 2 2 2 2

# A push replaces what is stored; values of several devices are added up first.
$kv->push(3, mx->nd->ones($shape) * 8);
$kv->pull(3, out => $a);
show('after a push', $a);                        # 8
$kv->push(3, [map { mx->nd->ones($shape, ctx => mx->gpu($_)) } 0 .. 3]);
$kv->pull(3, out => $a);
show('four devices', $a);                        # 4

# An updater decides otherwise. It sees the key as you wrote it.
$kv->_set_updater(sub {
    my ($key, $input, $stored) = @_;
    print "update on key $key\n";
    $stored += $input * 2;
});
$kv->push(3, mx->nd->ones($shape));
$kv->pull(3, out => $a);
show('with an updater', $a);                     # 4 + 2 = 6

# Lists of keys.
my @keys = (5, 7, 9);
$kv->init(\@keys, [map { mx->nd->ones($shape) } @keys]);
$kv->push(\@keys, [map { mx->nd->ones($shape) } @keys]);
my @out = map { mx->nd->zeros($shape) } @keys;
$kv->pull(\@keys, out => \@out);
show('a list of keys', $out[1]);                 # 1 + 2 = 3

# Only some rows.
$kv->init('embedding', mx->nd->ones([4, 2])->tostype('row_sparse'));
my $rows = mx->nd->sparse->zeros('row_sparse', [4, 2]);
$kv->row_sparse_pull('embedding', out => $rows, row_ids => mx->nd->array([3, 0, 3], dtype => 'int64'));
show('rows', $rows->indices);                    # 0 3

# --- a store of all workers ---------------------------------------------------------------------------------------------------------

my $all = mx->kv->create('dist_sync');           # joins the job that is there
my ($rank, $workers) = ($all->rank, $all->num_workers);
print "worker $rank of $workers\n";

# Worker 0's value counts. The optimizer runs where the weights live; one push of every worker is a round.
my $wanted = mx->nd->array([[1, 2, 3], [4, 5, 6]]);
my $weights = mx->nd->zeros($shape);
$all->init('weights', $weights);
$all->set_optimizer(mx->optimizer->SGD(learning_rate => 0.5, rescale_grad => 1 / $workers));
for my $step (1 .. 40) {
    $all->push('weights', $weights - $wanted);
    $all->pull('weights', out => $weights);
}
show('learned', $weights);                       # 1 2 3 4 5 6, nearly
die "it learned something else\n" unless (($weights - $wanted)->aspdl->abs < 1e-5)->all;
$all->_barrier;
print "done\n";
