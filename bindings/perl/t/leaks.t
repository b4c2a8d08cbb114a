# 100 000 calls leave nothing behind: neither values of Perl's, nor handles and memory of the library's.
use strict;
use warnings;
use Test::More;
use PDL;
use AI::MXNet qw(mx);
use Syncline;
use Syncline::KVStore;

my $calls = $ENV{CALLS} // 100_000;

# Memory of this process in KB.
sub resident { open my $file, '<', '/proc/self/statm' or return 0; my (undef, $pages) = split ' ', scalar <$file>; return $pages * 4 }

my $made = 0;
my $gone = 0;
{
    package Counted;
    sub new { $made++; return bless [], shift }
    sub DESTROY { $gone++ }
}

my $kv = Syncline::KVStore->create;
$kv->init('w', zeroes(float, 1000));
$kv->init('rows', Syncline::RowSparse->zeros([100, 4]));
my $mx = mx->kv->create;
$mx->init('w', mx->nd->zeros([10, 10]));
my ($adds, $raises) = (sub { my ($key, $recv, $local) = @_; $local += $recv }, sub { die Counted->new });
$mx->_set_updater($adds);
Syncline::init();
my $table = Syncline::ArrayTable->new(1000);
my ($gradient, $out) = (ones(float, 1000), zeroes(float, 1000));
my $rows = Syncline::RowSparse->new([3, 5], ones(float, 4, 2), [100, 4]);
my $array = mx->nd->ones([10, 10]);

my %work = (
    'push and pull'      => [1, sub { $kv->push('w', $gradient); $kv->pull('w', out => $out) }],
    'pull of a new array' => [1, sub { my $new = $kv->pull('w') }],
    'lists'              => [0.05, sub { $kv->push(['w', 'w'], [$gradient, [$gradient, $gradient]]) }],
    'rows'               => [0.05, sub { $kv->push('rows', $rows); my $some = $kv->row_sparse_pull('rows', row_ids => [3, 9]) }],
    'updaters'           => [0.05, sub { $mx->push('w', $array); $mx->pull('w', out => $array) }],
    'refusals'           => [0.1, sub { my $counted = Counted->new; eval { $kv->push('nobody', $gradient) }; eval { $kv->push('w', $counted) } }],
    'exceptions'         => [0.02, sub { $mx->_set_updater($raises); eval { $mx->push('w', $array) }; undef $@; $mx->_set_updater($adds) }],
    'tables'             => [1, sub { $table->add($gradient); $table->get(out => $out) }],
    'stores'             => [0.01, sub { my $store = Syncline::KVStore->create; $store->init('k', $gradient); $store->set_updater(sub { defined $store }); $store->set_updater(undef) }],
    'optimizers'         => [0.01, sub { my $store = Syncline::KVStore->create; $store->set_optimizer('sgd', learning_rate => 0.5) }],
    'arrays'             => [0.01, sub { my $sum = mx->nd->ones([10]) * 2 + 1; my $sparse = $sum->tostype('row_sparse')->aspdl }],
);
for my $name (sort keys %work) {
    my ($share, $code) = @{ $work{$name} };
    my $count = int($calls * $share);
    $code->() for 1 .. $count / 4 + 20;    # what is kept on purpose is kept now
    my ($before, $before_made) = (resident(), $made - $gone);
    $code->() for 1 .. $count;
    my ($grown, $kept) = (resident() - $before, ($made - $gone) - $before_made);
    cmp_ok($grown, '<', 1500, "$name: $count calls, ${grown} KB more");
    is($kept, 0, "$name: every object is gone") if $made;
}
done_testing;
