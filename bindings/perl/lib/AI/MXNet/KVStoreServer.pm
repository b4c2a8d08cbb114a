package AI::MXNet::KVStoreServer;

# The process of a job that only keeps values, as programs of MXNet write it.

use strict;
use warnings;

use Scalar::Util qw(blessed);
use Syncline ();
use Syncline::Array ();
use Syncline::Error ();

our $VERSION = '0.1.0';

# new(kvstore => STORE)
sub new {
    my ($class, @rest) = @_;
    Syncline::Error::argument('KVStoreServer: options come in pairs, name => value') if @rest % 2;
    my %options = @rest;
    my $store = delete $options{kvstore};
    Syncline::Error::argument("KVStoreServer has no option $_; it has kvstore") for sort keys %options;
    Syncline::Error::argument('KVStoreServer: kvstore is ' . Syncline::Array::shown($store) . ', and must be an AI::MXNet::KVStore')
        unless blessed $store && $store->isa('AI::MXNet::KVStore');
    return bless { kvstore => $store }, $class;
}

sub kvstore { $_[0]{kvstore} }

# run: returns when the last worker has left. A store of one process has no servers, and nothing to do here.
sub run {
    my ($self) = @_;
    Syncline::stay_for_workers() if $self->{kvstore}->type =~ /\Adist/;
    return;
}

1;

__END__

=head1 NAME

AI::MXNet::KVStoreServer - a process that only keeps values

=head1 SYNOPSIS

    # SYNCLINE_ROLE=server, or DMLC_ROLE=server
    my $kv = mx->kv->create('dist_sync');
    AI::MXNet::KVStoreServer->new(kvstore => $kv)->run;

=head1 DESCRIPTION

Few programs need it: workers keep values themselves, C<syncline run --servers 2> starts processes that do nothing else, and C<syncline server> is such a process under any
other launcher. Unlike the original, loading the module runs nothing: a program decides by C<Syncline::worker_id()>, which is -1 on a server.

=over

=item new(kvstore => $kv)

In a server C<create> of a distributed store joins the job; the store has C<type>, C<rank> and C<num_workers>, and leaves the rest to workers.

=item run()

Serves until every worker has left or died, then returns. In a worker it dies with C<ConfigurationError>; with a local store it returns at once. Optimizers reach servers as data,
through C<set_optimizer> of the workers' stores: no command makes a server execute what it was sent.

=back

=cut
