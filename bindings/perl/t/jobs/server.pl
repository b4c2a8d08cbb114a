# Two workers, and a server that is a program in Perl: rank 2 keeps what the others push.
use strict;
use warnings;
BEGIN { $ENV{SYNCLINE_ROLE} = $ENV{SYNCLINE_RANK} == 2 ? 'server' : 'worker' }
use AI::MXNet qw(mx);

my $kv = mx->kv->create('dist_sync');
if (Syncline::worker_id() < 0) {
    die "as a server it is " . $kv->type . ' ' . $kv->rank . "\n" unless $kv->type eq 'dist_sync' && $kv->rank == 0 && $kv->num_workers == 2;
    eval { $kv->init('w', mx->nd->ones([3])); 1 } and die "a server made a value\n";
    die $@ unless ref $@ eq 'Syncline::Error::ConfigurationError';
    AI::MXNet::KVStoreServer->new(kvstore => $kv)->run;
}
else {
    die "there are servers beside the one\n" unless Syncline::num_servers() == 1 && Syncline::server_id() == -1;
    $kv->init('w', mx->nd->ones([3]));
    $kv->set_optimizer(mx->optimizer->create('sgd', learning_rate => 0.5));
    my $out = mx->nd->zeros([3]);
    for my $round (1 .. 10) {
        $kv->push('w', mx->nd->ones([3]));
        $kv->pull('w', out => $out);
    }
    die "it is @{[$out->aspdl]}\n" unless ($out->aspdl == 1 - 10)->all;    # two gradients of one a round, half of each
}
print "fine\n";
