# Arguments that are wrong are refused, and never overlooked: each call dies with an ArgumentError at this file's line.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use PDL;
use AI::MXNet qw(mx);
use Syncline;
use Syncline::KVStore;

Syncline::init();
my $ones = mx->nd->ones([2, 3]);
my $kv = mx->kv->create;
$kv->init('a', $ones);
my $store = Syncline::KVStore->create;
$store->init('a', ones(float, 3));
my $array = Syncline::ArrayTable->new(4);
my $matrix = Syncline::MatrixTable->new(3, 2);
my $sgd = Syncline::Optimizer->create('sgd');
my $counts = Syncline::ArrayTable->new(2, undef, dtype => 'int64');

my @refused = (
    [init => sub { $kv->init('b', $ones, priority => 1) }],
    [init => sub { $store->init('b', ones(float, 3), 5) }],
    [rank => sub { $kv->push('a', $ones, rank => 1) }],
    [pairs => sub { $kv->push('a', $ones, 'priority') }],
    [wait => sub { $kv->push('a', $ones, wait => 0) }],
    [outs => sub { $kv->pull('a', out => $ones, outs => 1) }],
    [row_ids => sub { $kv->pull('a', out => $ones, row_ids => $ones) }],
    [set_optimizer => sub { $kv->set_optimizer(mx->optimizer->SGD, learning_rate => 1) }],
    [set_optimizer => sub { $store->set_optimizer($sgd, learning_rate => 1) }],
    [_set_updater => sub { $kv->_set_updater(sub { }, 1) }],
    [set_updater => sub { $store->set_updater(undef, 1) }],
    [set_learning_rate => sub { $store->set_learning_rate(1, 2) }],
    [set_gradient_compression => sub { mx->kv->create('device')->set_gradient_compression({ type => '2bit' }, 0.5) }],
    [load_optimizer_states => sub { $kv->load_optimizer_states('/nowhere/at/all', dump_optimizer => 1) }],
    [dump => sub { $kv->save_optimizer_states('/nowhere/at/all', dump => 1) }],
    [send_command_to_servers => sub { $kv->_send_command_to_servers(99, 'x', 'y') }],
    [is_capable => sub { $kv->is_capable('optimizer', 'magic') }],
    [one => sub { mx->kv->create('local', 'dist_sync') }],
    [int_key => sub { Syncline::KVStore->create('local', int_key => 1) }],
    [stype => sub { mx->nd->ones([2, 3], stypo => 'row_sparse') }],
    [row_sparse => sub { mx->nd->ones([2, 3], stype => 'row_sparse') }],
    [row_sparse => sub { mx->nd->array([1, 2], stype => 'row_sparse') }],
    [csr => sub { mx->nd->zeros([2, 3], stype => 'csr') }],
    [row_sparse => sub { mx->nd->sparse->zeros('row_sparse', [2, 3], stype => 'default') }],
    [shape => sub { mx->nd->sparse->row_sparse_array($ones, shape => [3, 2]) }],
    [device => sub { AI::MXNet::Context->new(device_type => 'cpu', device => 1) }],
    [cpu => sub { mx->cpu(0, 1) }],
    [gpu => sub { mx->gpu(0, 1) }],
    [sum => sub { $ones->sum(axis => 0) }],
    [astype => sub { $ones->astype('float64', 1) }],
    [reshape => sub { $ones->reshape(3, 2) }],
    ['whole numbers' => sub { $matrix->get(row_ids => [0, 0.5]) }],
    [row_ids => sub { $array->get(row_ids => [0]) }],
    [row_ids => sub { $array->add(ones(float, 4), row_ids => [0]) }],
    [sync => sub { $array->get(sync => 1) }],
    [sync => sub { $array->add_get(ones(float, 4), sync => 1) }],
    [out => sub { $array->add(ones(float, 4), out => zeroes(float, 4)) }],
    [momentum => sub { $matrix->get(momentum => 0.5) }],
    [out => sub { $matrix->add(ones(float, 2), row_ids => [0], out => zeroes(float, 2)) }],
    [row_ids => sub { $matrix->add_get(ones(float, 2, 3), row_ids => [0]) }],
    [dtyp => sub { Syncline::ArrayTable->new(4, undef, dtyp => 'int64') }],
    # Numbers that those of a table cannot hold.
    ['the delta: number 1 is 0.5, and the table has int64' => sub { $counts->add([1, 0.5]) }],
    ['number 0 is 1e+30' => sub { $counts->add(pdl(1e30, 1)) }],
    ['number 1 is 0.5' => sub { $counts->add(pdl(float, 1, 0.5), sync => 1) }],
    ['number 0 is' => sub { $counts->add(pdl('nan', 1)) }],
    ['the initial value: number 2 is 300, and the table has uint8' => sub { Syncline::ArrayTable->new(3, longlong(1, 2, 300), dtype => 'uint8') }],
    ['number 1 is -1' => sub { Syncline::MatrixTable->new(3, 2, undef, dtype => 'uint8')->add([5, -1], row_ids => [0]) }],
    [dtyp => sub { Syncline::RowSparse->new([0], ones(float, 2), [3, 2], dtyp => 'float32') }],
    [pairs => sub { Syncline::RowSparse->zeros([3, 2], 'float64') }],
    [aggregate => sub { Syncline::aggregate(ones(float, 3), 'sum', 1) }],
    [all_reduce => sub { Syncline::all_reduce(ones(float, 3), 'sum', 1) }],
    [synch => sub { Syncline::init(synch => 1) }],
);
for my $case (@refused) {
    my ($named, $call) = @$case;
    my $lived = eval { $call->(); 1 };
    my $error = $@;
    ok(!$lived, "$named is not overlooked") or next;
    is(ref $error, 'Syncline::Error::ArgumentError', "$named: an error of its own") or diag("$error");
    like("$error", qr/\Q$named\E.* at \S*overlooked\.t line \d+\.$/s, "$named: said at the caller's line");
}
# What the library itself decides has a kind of its own.
for my $call (sub { mx->optimizer->SGD(momentun => 0.5) }, sub { mx->lr_scheduler->FactorScheduler(step => 10, faktor => 0.5) }) {
    is(eval { $call->(); 1 }, undef, 'an option that nobody knows');
    is(ref $@, 'Syncline::Error::ConfigurationError', 'is refused by the library') or diag("$@");
}

is($kv->_updater, undef, 'nothing of it was done: no optimizer, no updater');
is_deeply([$array->get->list, $matrix->get->list], [(0) x 10], 'no add');
is("@{[$counts->get->list]}", '0 0', 'no whole number lost');
$counts->add([3, -2]);
$counts->add(pdl(float, 1, 1));
is("@{[$counts->get->list]}", '4 -1', 'what is whole is held, of whichever type');
$store->push('a', ones(float, 3) * 5);
is($store->pull('a')->sum, 15, 'and stores do what they did');
is(eval { $kv->pull('b', out => $ones); 1 }, undef, 'no key was made');

my $rows = mx->nd->zeros([4, 2], mx->gpu(1), stype => 'row_sparse', dtype => 'float64');
is_deeply([$rows->stype, $rows->dtype, $rows->shape, "" . $rows->ctx], ['row_sparse', 'float64', [4, 2], 'gpu(1)'], 'zeros are row-sparse where they are asked to be');
is(mx->nd->zeros([4, 2], stype => 'default')->stype, 'default', 'or not');
is(AI::MXNet::Context->new('gpu')->device_id, 0, 'a context by its type alone');
Syncline::shutdown();
done_testing;
