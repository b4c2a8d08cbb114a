package AI::MXNet;

# The names that programs of MXNet's Perl interface use: mx->kv, mx->nd, mx->optimizer, mx->cpu.

use strict;
use warnings;

use AI::MXNet::Context ();
use AI::MXNet::KVStore ();
use AI::MXNet::KVStoreServer ();
use AI::MXNet::LRScheduler ();
use AI::MXNet::NDArray ();
use AI::MXNet::Optimizer ();

our $VERSION = '0.1.0';

# use AI::MXNet qw(mx): a package of this name, with the methods below.
sub import {
    my ($class, @names) = @_;
    for my $name (@names) {
        Syncline::Error::argument('use AI::MXNet: ' . Syncline::Array::shown($name) . ' is no name') unless defined $name && $name =~ /\A[A-Za-z_]\w*\z/;
        no strict 'refs';
        push @{"${name}::ISA"}, $class unless $name->isa($class);
    }
    return;
}

sub kv           { 'AI::MXNet::KVStore' }
sub kvstore      { 'AI::MXNet::KVStore' }
sub nd           { 'AI::MXNet::NDArray' }
sub ndarray      { 'AI::MXNet::NDArray' }
sub optimizer    { 'AI::MXNet::Optimizer' }
sub opt          { 'AI::MXNet::Optimizer' }
sub lr_scheduler { 'AI::MXNet::LRScheduler' }
sub context      { 'AI::MXNet::Context' }
sub cpu          { my (undef, $id, @more) = @_; Syncline::Error::no_more('cpu', @more); return AI::MXNet::Context->new(device_type => 'cpu', device_id => $id // 0) }
sub gpu          { my (undef, $id, @more) = @_; Syncline::Error::no_more('gpu', @more); return AI::MXNet::Context->new(device_type => 'gpu', device_id => $id // 0) }

1;

__END__

=head1 NAME

AI::MXNet - MXNet's key-value store for Perl, on Syncline

=head1 SYNOPSIS

    use AI::MXNet qw(mx);

    my $kv = mx->kv->create('local');
    $kv->init(3, mx->nd->ones([2, 3]) * 2);
    my $out = mx->nd->zeros([2, 3]);
    $kv->pull(3, out => $out);
    print $out->aspdl;

=head1 DESCRIPTION

What programs written for MXNet's Perl interface use of it to keep parameters the same in many processes: the store, arrays, optimizers, schedulers, and contexts as labels. There are no operators, graphs or modules here.

=over

=item mx->kv

L<AI::MXNet::KVStore>; C<mx-E<gt>kv-E<gt>create('dist_sync')>.

=item mx->nd

L<AI::MXNet::NDArray>: C<ones zeros full array empty>, and C<mx-E<gt>nd-E<gt>sparse> for row-sparse arrays.

=item mx->optimizer, mx->lr_scheduler

L<AI::MXNet::Optimizer>, L<AI::MXNet::LRScheduler>.

=item mx->cpu($id = 0), mx->gpu($id = 0)

L<AI::MXNet::Context>: labels, since all arrays are in the memory of this machine.

=back

Loading the module starts no server and joins no job; C<create> of a distributed store does.

=cut
