# Each documented call of a store, called as documented, answers as documented: one subtest for each.
use strict;
use warnings;
use Test::More;
use File::Temp qw(tempdir);
use PDL;
use AI::MXNet qw(mx);

sub dies_as {
    my ($kind, $code, $name) = @_;
    my $lived = eval { $code->(); 1 };
    my $error = $@;
    return fail("$name: it lived") if $lived;
    is(ref $error, "Syncline::Error::$kind", $name) or diag("$error");
    like("$error", qr/checklist\.t line \d+\.$/, "$name: the caller's own line");
    return $error;
}
sub value { my ($kv, $key, $shape) = @_; my $out = mx->nd->zeros($shape // [2, 3]); $kv->pull($key, out => $out); return $out->aspdl->at(0, 0) }
my $ones = mx->nd->ones([2, 3]);

subtest 'create' => sub {
    is(mx->kv->create->type, 'local', 'local is the default');
    is(mx->kv->create('LOCAL_Update_CPU')->type, 'local_update_cpu', 'any case');
    is(mx->kv->create($_)->type, $_, $_) for qw(device local_allreduce_device row_sparse);
    dies_as(ArgumentError => sub { mx->kv->create(undef) }, 'undef is no type');
    dies_as(ArgumentError => sub { mx->kv->create([]) }, 'a list is no type');
    like(dies_as(ConfigurationError => sub { mx->kv->create('locale') }, 'an unknown type'), qr/dist_sync/, 'all types are named');
    is(mx->kv->create('dist_sync')->num_workers, 1, 'a distributed store of a world of one joins by itself');
};
subtest 'init' => sub {
    my $kv = mx->kv->create;
    my $source = mx->nd->ones([2, 3]);
    $kv->init('a', $source);
    $source += 5;
    is(value($kv, 'a'), 1, 'a copy is stored');
    $kv->init(['b', 'c'], [$ones * 2, $ones * 3]);
    is(value($kv, 'c'), 3, 'lists');
    dies_as(ConfigurationError => sub { $kv->init('a', $ones) }, 'a duplicate');
    dies_as(ShapeMismatch => sub { $kv->init(['d', 'e'], [$ones]) }, 'more keys than values');
    dies_as(UnknownKey => sub { value($kv, 'd') }, 'nothing was made');
    $kv->init(7, $ones);
    is(value($kv, '7'), 1, 'numbers are texts: 7 and "7" are one key');
};
subtest 'KVStoreServer' => sub {
    my $kv = mx->kv->create;
    my $server = AI::MXNet::KVStoreServer->new(kvstore => $kv);
    is($server->kvstore, $kv, 'its store');
    is($server->run, undef, 'a local store has no servers: nothing to wait for');
    dies_as(ArgumentError => sub { AI::MXNet::KVStoreServer->new }, 'a store is needed');
    dies_as(ArgumentError => sub { AI::MXNet::KVStoreServer->new(kvstore => 'local') }, 'a name is none');
    dies_as(ArgumentError => sub { AI::MXNet::KVStoreServer->new(kvstore => $kv, store => 1) }, 'an unknown option');
    my $worker = AI::MXNet::KVStoreServer->new(kvstore => mx->kv->create('dist_sync'));
    dies_as(ConfigurationError => sub { $worker->run }, 'a worker would wait for itself');
};
subtest 'push' => sub {
    my $kv = mx->kv->create;
    $kv->init('a', $ones);
    is($kv->push('a', $ones * 8, priority => -1), undef, 'returns nothing');
    is(value($kv, 'a'), 8, 'replaces');
    my $source = $ones * 2;
    $kv->push('a', $source);
    $source += 1;
    is(value($kv, 'a'), 2, 'the store shares no memory with what was pushed');
    $kv->push('a', [($ones) x 3]);
    is(value($kv, 'a'), 3, 'sums over values');
    $kv->push(['a', 'a'], [$ones, $ones * 4]);
    is(value($kv, 'a'), 5, 'a key that stands twice is taken together');
    dies_as(UnknownKey => sub { $kv->push('b', $ones) }, 'an unknown key');
    dies_as(ShapeMismatch => sub { $kv->push('a', mx->nd->ones([3, 2])) }, 'another shape');
    dies_as(ShapeMismatch => sub { $kv->push('a', mx->nd->ones([2, 3], dtype => 'float64')) }, 'another dtype');
    dies_as(ArgumentError => sub { $kv->push('a', 5) }, 'a number is no array');
    dies_as(ArgumentError => sub { $kv->push('a', $ones, priority => 'high') }, 'a priority is a number');
    my $async = mx->kv->create('dist_async');
    $async->init('a', $ones);
    dies_as(ConfigurationError => sub { $async->push('a', $ones) }, 'async without an optimizer is refused at the caller');
};
subtest 'pull' => sub {
    my $kv = mx->kv->create;
    $kv->init('a', $ones * 4);
    my @outs = map { mx->nd->zeros([2, 3]) } 1 .. 3;
    $kv->pull('a', out => \@outs, priority => 5);
    is($_->aspdl->sum, 24, 'every output') for @outs;
    my $rows = mx->nd->full([2, 3], 2)->tostype('row_sparse');
    $kv->pull('a', out => $rows);
    is($rows->aspdl->sum, 12, 'row-sparse outputs are left alone');
    $kv->pull('a', out => $rows, ignore_sparse => 0);
    is($rows->aspdl->sum, 24, 'unless asked for');
    dies_as(ArgumentError => sub { $kv->pull('a') }, 'out is missing');
    dies_as(UnknownKey => sub { $kv->pull('b', out => $outs[0]) }, 'an unknown key');
    dies_as(ShapeMismatch => sub { $kv->pull('a', out => mx->nd->zeros([2])) }, 'another shape');
    dies_as(ArgumentError => sub { $kv->pull('a', out => 'text') }, 'a text is no array');
    my $dist = mx->kv->create('dist_sync');
    $dist->init('a', $ones * 4);
    dies_as(ConfigurationError => sub { $dist->pull('a', out => $rows, ignore_sparse => 0) }, 'not from a distributed store');
};
subtest 'pushpull' => sub {
    my $kv = mx->kv->create('device');
    $kv->init('a', $ones);
    my @values = map { mx->nd->ones([2, 3]) } 1 .. 4;
    my $out = mx->nd->zeros([2, 3]);
    $kv->pushpull('a', \@values, out => $out);
    is($out->aspdl->at(0, 0), 4, 'into out');
    $kv->pushpull('a', \@values);
    is($_->aspdl->at(0, 0), 4, 'in place') for @values;
    dies_as(UnknownKey => sub { $kv->pushpull('b', $ones) }, 'an unknown key');
    dies_as(ShapeMismatch => sub { $kv->pushpull('a', $ones, out => mx->nd->zeros([2, 3], dtype => 'float64')) }, 'an output of another dtype');
    my $dist = mx->kv->create('dist_sync');
    $dist->init('r', $ones->tostype('row_sparse'));
    my $rows = mx->nd->sparse->zeros('row_sparse', [2, 3]);
    dies_as(ConfigurationError => sub { $dist->pushpull('r', $ones * 5, out => $rows) }, 'row-sparse outputs of a distributed store');
    dies_as(ConfigurationError => sub { $dist->pushpull('r', ($ones * 5)->tostype('row_sparse')) }, 'row-sparse values in place, too');
    is(value($dist, 'r'), 1, 'and nothing was pushed');
};
subtest 'broadcast' => sub {
    my $kv = mx->kv->create;
    my $out = mx->nd->zeros([2, 3]);
    $kv->broadcast('a', $ones * 9, out => $out);
    is($out->aspdl->at(0, 0), 9, 'init and pull');
    dies_as(ConfigurationError => sub { $kv->broadcast('a', $ones, out => $out) }, 'once per key');
    dies_as(ArgumentError => sub { $kv->broadcast('b', $ones) }, 'out is missing');
};
subtest 'row_sparse_pull' => sub {
    my $kv = mx->kv->create;
    $kv->init('e', mx->nd->ones([4, 2])->tostype('row_sparse'));
    $kv->init('dense', $ones);
    my @outs = map { mx->nd->sparse->zeros('row_sparse', [4, 2]) } 1 .. 3;
    my $ids = mx->nd->array([[3, 0], [3, 3]]);
    $kv->row_sparse_pull('e', out => \@outs, row_ids => $ids);
    is_deeply([$_->indices->aspdl->list], [0, 3], 'one list of ids for all outputs') for @outs;
    $kv->row_sparse_pull('e', out => $outs[0], row_ids => mx->nd->array([], dtype => 'int64'));
    is($outs[0]->aspdl->sum, 0, 'no ids, no rows');
    dies_as(ArgumentError => sub { $kv->row_sparse_pull('e', out => mx->nd->zeros([4, 2]), row_ids => $ids) }, 'a dense output');
    dies_as(ConfigurationError => sub { $kv->row_sparse_pull('dense', out => mx->nd->sparse->zeros('row_sparse', [2, 3]), row_ids => $ids) }, 'a dense key');
    like(dies_as(ShapeMismatch => sub { $kv->row_sparse_pull('e', out => \@outs, row_ids => [$ids, $ids]) }, 'a list too short'),
        qr/the number of row_ids doesn't match the number of values/, 'in the words of the original');
    dies_as(UnknownKey => sub { $kv->row_sparse_pull('e', out => $outs[0], row_ids => mx->nd->array([4])) }, 'a row that is none');
    my $dist = mx->kv->create('dist_sync');
    $dist->init('e', mx->nd->ones([4, 2])->tostype('row_sparse'));
    $dist->row_sparse_pull('e', out => \@outs, row_ids => $ids);
    is($_->aspdl->sum, 4, 'several outputs from a distributed store') for @outs;
    dies_as(ArgumentError => sub { $kv->row_sparse_pull('e', out => $outs[0]) }, 'row_ids are missing');
};
subtest 'set_optimizer' => sub {
    for my $optimizer (mx->optimizer->SGD(learning_rate => 0.5), mx->optimizer->create('sgd', learning_rate => 0.5), AI::MXNet::SGD->new(learning_rate => 0.5)) {
        my $kv = mx->kv->create;
        $kv->init('a', $ones);
        $kv->set_optimizer($optimizer);
        $kv->push('a', $ones);
        is(value($kv, 'a'), 0.5, 'by object, by name, by class');
    }
    my $kv = mx->kv->create('dist_sync');
    $kv->init('a', $ones);
    my $sgd = mx->optimizer->SGD(learning_rate => 0.5);
    $kv->set_optimizer($sgd);
    $kv->push('a', $ones);
    $sgd->lr(0.25);
    $kv->push('a', $ones);
    is(value($kv, 'a'), 0.25, 'a rate that changes later reaches the servers');
    dies_as(ArgumentError => sub { $kv->set_optimizer('sgd') }, 'a text is no optimizer');
    dies_as(ConfigurationError => sub { mx->optimizer->SGD(momentun => 0.5) }, 'an unknown option');
    dies_as(ConfigurationError => sub { mx->optimizer->create('sdg') }, 'an unknown name');
};
subtest 'set_gradient_compression' => sub {
    like(dies_as(ConfigurationError => sub { mx->kv->create->set_gradient_compression({ type => '2bit' }) }, 'a local store'),
        qr/Gradient compression is not supported for this type of kvstore/, 'in the words of the original');
    my $kv = mx->kv->create('device');
    like(dies_as(ConfigurationError => sub { $kv->set_gradient_compression({ type => '3bit' }) }, 'an unknown type'), qr/Unknown type for gradient compression 3bit/, 'named');
    dies_as(ConfigurationError => sub { $kv->set_gradient_compression({ type => '2bit', threshold => 0 }) }, 'a threshold of nothing');
    dies_as(ConfigurationError => sub { $kv->set_gradient_compression({}) }, 'the type is required');
    dies_as(ArgumentError => sub { $kv->set_gradient_compression('2bit') }, 'a text is no hash');
    is($kv->set_gradient_compression({ type => '1bit', threshold => -1 }), undef, 'any threshold for one bit');
    $kv->init('double', mx->nd->ones([2, 3], dtype => 'float64'));
    dies_as(ConfigurationError => sub { $kv->push('double', mx->nd->ones([2, 3], dtype => 'float64')) }, 'other numbers than float32');
    $kv->init('rows', $ones->tostype('row_sparse'));
    dies_as(ConfigurationError => sub { $kv->push('rows', $ones->tostype('row_sparse')) }, 'rows');
    my $dist = mx->kv->create('dist_sync');
    $dist->set_gradient_compression({ type => '2bit', threshold => 0.5 });
    $dist->init('a', mx->nd->zeros([2, 3]));
    $dist->set_optimizer(mx->optimizer->Test);
    my @seen = map { $dist->push('a', mx->nd->full([2, 3], 0.3)); value($dist, 'a') } 1 .. 4;
    is_deeply(\@seen, [0, 0.5, 0.5, 1], 'what is not said yet is said later');
};
subtest '_set_updater' => sub {
    my $kv = mx->kv->create;
    $kv->init('weight', $ones);
    my @seen;
    $kv->_set_updater(sub { my ($key, $recv, $local) = @_; push @seen, $key, $recv->stype; $local .= $local * 10 + $recv });
    $kv->push('weight', $ones * 2);
    is(value($kv, 'weight'), 12, 'it decides');
    $kv->push('weight', $ones->tostype('row_sparse'));
    is_deeply(\@seen, ['weight', 'default', 'weight', 'row_sparse'], 'it sees key and storage');
    $kv->_set_updater(sub { die "not this one\n" });
    is(eval { $kv->push('weight', $ones); 1 }, undef, 'what it dies with');
    is($@, "not this one\n", 'comes out as it was');
    $kv->_set_updater(sub { $kv->push('weight', $ones) });
    dies_as(ConfigurationError => sub { $kv->push('weight', $ones) }, 'it may not call the store');
    dies_as(ArgumentError => sub { $kv->_set_updater(undef) }, 'nothing is no function');
    dies_as(ConfigurationError => sub { mx->kv->create('dist_sync')->_set_updater(sub { }) }, 'functions do not travel');
};
subtest 'save_optimizer_states, load_optimizer_states' => sub {
    my $folder = tempdir(CLEANUP => 1);
    for my $type (qw(local dist_sync)) {
        my $make = sub {
            my $kv = mx->kv->create($type);
            $kv->init('a', mx->nd->zeros([2, 3]));
            $kv->set_optimizer(mx->optimizer->SGD(learning_rate => 1, momentum => 0.5));
            return $kv;
        };
        my $kv = $make->();
        $kv->push('a', $ones);
        $kv->save_optimizer_states("$folder/$type", dump_optimizer => 1);
        my $later = $make->();
        $later->load_optimizer_states("$folder/$type");
        $later->push('a', $ones);
        is(value($later, 'a'), -1.5, "$type: the momentum goes on");
        dies_as(SystemError => sub { $kv->load_optimizer_states("$folder/nothing") }, "$type: no such file");
        dies_as(ArgumentError => sub { $kv->save_optimizer_states(undef) }, "$type: no name");
    }
};
subtest '_barrier' => sub { is(mx->kv->create($_)->_barrier, undef, $_) for qw(local dist_sync) };
subtest '_send_command_to_servers' => sub {
    my $kv = mx->kv->create('dist_sync');
    is($kv->_send_command_to_servers(99, 'anything'), undef, 'is answered and ignored');
    dies_as(ConfigurationError => sub { $kv->_send_command_to_servers(0, "pst0\x04\x03") }, 'nothing that is sent is executed');
    dies_as(ArgumentError => sub { $kv->_send_command_to_servers('zero', '') }, 'a command is a number');
};
subtest 'type, rank, num_workers, handle' => sub {
    my $kv = mx->kv->create('dist_sync');
    is_deeply([$kv->type, $kv->rank, $kv->num_workers, $kv->num_dead_node, $kv->is_capable('optimizer')], ['dist_sync', 0, 1, 0, 1], 'facts');
    ok($kv->handle, 'a handle');
    is($kv->_updater, undef, 'no updater yet');
    dies_as(ConfigurationError => sub { $kv->is_capable('magic') }, 'an unknown capability');
};
done_testing;
