package AI::MXNet::Optimizer;

# Optimizers by name and by object, in MXNet's spelling.

use strict;
use warnings;

use Syncline::Error ();
use Syncline::Optimizer ();

our $VERSION = '0.1.0';
our @ISA = ('Syncline::Optimizer');

my %CLASS = map { lc $_ => $_ } qw(SGD NAG Signum FTML DCASGD SGLD Adam AdamW AdaGrad RMSProp AdaDelta Ftrl Adamax Nadam LAMB LARS Test Custom);

# create(NAME, OPTIONS), and below it a class and a method for each name: AI::MXNet::SGD->new(...), mx->optimizer->SGD(...).
sub create {
    my ($class, $name, @options) = @_;
    Syncline::Error::argument("an optimizer: options come in pairs, name => value") if @options % 2;
    my %options = @options;
    my $names = delete $options{param_idx2name};
    my $known = defined $name && !ref $name ? $CLASS{ lc $name } : undef;
    my $self = Syncline::Optimizer::create($known ? "AI::MXNet::$known" : $class, $name, %options);
    return $self unless defined $names;
    # Parameters that are neither weights nor scales do not decay.
    Syncline::Error::argument('param_idx2name must be a hash') unless ref $names eq 'HASH';
    $self->set_wd_mult({ (map { $_ => 0 } grep { ($names->{$_} // '') !~ /_(?:weight|gamma)\z/ } keys %$names), %{ $options{wd_mult} // {} } });
    return $self;
}

sub new { my ($class, @options) = @_; return $class->create($class->kind, @options) }

sub kind {
    my ($class) = @_;
    my ($name) = (ref $class || $class) =~ /::(\w+)\z/;
    Syncline::Error::argument("$class is no optimizer\nhint: create(NAME)") unless exists $CLASS{ lc $name };
    return lc $name;
}

for my $name (values %CLASS) {
    no strict 'refs';
    @{"AI::MXNet::${name}::ISA"} = (__PACKAGE__);
    *$name = sub { my (undef, @options) = @_; return "AI::MXNet::$name"->new(@options) };
}

sub lr           { my ($self, @rate) = @_; return $self->learning_rate(@rate) }
sub set_lr_mult  { my ($self, $by_key) = @_; $self->set(lr_mult => $by_key); return }
sub set_wd_mult  { my ($self, $by_key) = @_; $self->set(wd_mult => $by_key); return }
sub wd           { my ($self, @wd) = @_; $self->set(wd => @wd) if @wd; return $self->get('wd') }
sub momentum     { my ($self, @momentum) = @_; $self->set(momentum => @momentum) if @momentum; return $self->get('momentum') }
sub rescale_grad { my ($self, @rescale) = @_; $self->set(rescale_grad => @rescale) if @rescale; return $self->get('rescale_grad') }

1;

__END__

=head1 NAME

AI::MXNet::Optimizer - optimizers by name and by object

=head1 SYNOPSIS

    $kv->set_optimizer(mx->optimizer->SGD(learning_rate => 0.1, momentum => 0.9));
    $kv->set_optimizer(mx->optimizer->create('adam'));
    my $optimizer = AI::MXNet::NAG->new(learning_rate => 0.1);
    $optimizer->lr(0.01);

=head1 DESCRIPTION

C<SGD NAG Signum FTML DCASGD SGLD Adam AdamW AdaGrad RMSProp AdaDelta Ftrl Adamax Nadam LAMB LARS Test>, with MXNet's options and defaults, and C<Custom>. Everything of L<Syncline::Optimizer>, and
C<lr>, C<wd>, C<momentum>, C<rescale_grad>, C<set_lr_mult({...})>, C<set_wd_mult({...})>. C<param_idx2name> spares all parameters from decay whose names do not end in C<_weight> or C<_gamma>.

=cut
